// How a job opens a model: workers and servers learn its spec and each other's
// endpoints and memory. A job may open several, one after the other; each has a
// Welcome of its own, which exchanges are made of.
//
//   worker   gathers its part with all workers; rank 0 asks the servers
//   server   listens, gathers its part with all servers; rank 0 answers
//
// A ring has no servers: the gather is all.
#ifndef PSRING_COMMON_CLUSTER_MODEL_OPENING_H_
#define PSRING_COMMON_CLUSTER_MODEL_OPENING_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "protos/cluster.pb.h"

namespace psring {

// A worker's: all workers call it, with the same id and the same spec. `id` is
// new in this job. Blocks. FAILED_PRECONDITION names the worker whose spec
// differs from worker 0's, and the first field that does; DEADLINE_EXCEEDED
// names who has not come.
absl::StatusOr<proto::Welcome> OpenModel(Member& member, const std::string& id,
                                         const proto::ModelPart& part,
                                         Time deadline);

// A worker's: all workers call it when none of them has anything under way with
// this model. Its servers let go of it.
absl::Status CloseModel(Member& member, const std::string& id, Time deadline);

// A server's: what workers have announced.
struct ModelRequest {
  enum class Kind { kOpen, kClose };
  Kind kind = Kind::kOpen;
  proto::Welcome model;  // kClose: its id only
};

// INVALID_ARGUMENT when it is neither.
absl::StatusOr<ModelRequest> ParseModelRequest(
    const proto::Announce& announcement);

// A server's answer to kOpen: `part` has the endpoints that it listens on.
// Blocks until all servers have answered; the model with all parts filled in.
// `model` has as many workers and servers as the job; which these are, the
// coordinator has said, and not who asks. INVALID_ARGUMENT names whose endpoint
// or memory is not its own.
absl::StatusOr<proto::Welcome> AnswerModel(Member& member,
                                           const proto::Welcome& model,
                                           const proto::ModelPart& part,
                                           Time deadline);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_MODEL_OPENING_H_
