// Where NCCL sums: in ring mode, in place of the hosts' own ring, and within a
// host before servers do; and what it may use of the network.
#ifndef PSRING_CLIENT_RING_BACKEND_H_
#define PSRING_CLIENT_RING_BACKEND_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/job_client.h"
#include "common/clock.h"
#include "protos/cluster.pb.h"
#include "ring/nccl/nccl_api.h"  // IWYU pragma: export

namespace psring {

using NcclLoader = std::function<absl::StatusOr<NcclApi>()>;

// `wish`: "host", "nccl", or "auto": NCCL where the model lies on a GPU
// (`on_gpu`), nothing in `spec` rules it out and it can be loaded. Sets the
// ring backend of `spec`; a value: it is NCCL. No ring: nothing is done.
// INVALID_ARGUMENT and LoadNccl's errors where NCCL was wished for and cannot
// be had.
absl::StatusOr<std::optional<NcclApi>> ChooseRingBackend(
    const std::string& wish, bool on_gpu, proto::JobSpec& spec,
    const NcclLoader& load = [] { return LoadNccl(); });

// Why not all workers of a job can sum by NCCL together; "" where they can.
// `gpus[r]`: the bus of the GPU on which worker r would, or "" where it cannot.
// Two may not have the same, nor slices of it (MIG), unless `may_share`.
std::string ReasonAgainstNccl(absl::Span<const std::string> gpus,
                              const proto::Welcome& job, bool may_share);

// What a worker brings to AgreeOnNccl.
struct NcclVote {
  std::string gather;  // the name of the gather, new in the job
  std::string gpu;     // the bus of its GPU
  bool may_share = false;
  // Keeps NCCL, whatever the others have; PrepareNcclNetwork then refuses what
  // would have to be encrypted.
  bool must = false;
};

// All workers of a ring call it after ChooseRingBackend, which gave `nccl`, so
// that all take NCCL or none. Where not all can, or what NCCL sends between
// hosts would have to be encrypted, empties `nccl` and sets the ring backend of
// `spec` to the host's; worker 0 logs why. Blocks until all have called it.
absl::Status AgreeOnNccl(JobClient& job, const NcclVote& vote, Time deadline,
                         proto::JobSpec& spec, std::optional<NcclApi>& nccl);

// What sums the gradients of this worker's GPU with those of others on its host
// before they go to the servers. `wish`: "off", or "auto": NCCL where the model
// lies on a GPU, the servers take the gradients of all workers in each step,
// NCCL can be loaded, and `spec` neither records nor replays an order of
// updates, which names every worker. Workers need not agree. Nothing: each
// pushes its own.
std::optional<NcclApi> ChooseHostSum(
    const std::string& wish, bool on_gpu, const proto::JobSpec& spec,
    const NcclLoader& load = [] { return LoadNccl(); });

// This worker's, of a job over NCCL.
struct NcclNetwork {
  std::string address;  // that psring uses: "10.0.0.2"
  // What psring itself sends is encrypted.
  bool protects_own = false;
  bool requires_encryption = false;
};

// Before the first call of NCCL in a job with several hosts, between which it
// encrypts nothing: keeps it, by an environment variable, to the interface of
// psring's address, and says so in the log. FAILED_PRECONDITION where all has
// to be encrypted.
absl::Status PrepareNcclNetwork(const proto::Welcome& job,
                                const NcclNetwork& network);

}  // namespace psring

#endif  // PSRING_CLIENT_RING_BACKEND_H_
