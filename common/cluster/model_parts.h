// What the processes of a job bring to a model that it opens: where they listen
// for it, and which memory they share.
#ifndef PSRING_COMMON_CLUSTER_MODEL_PARTS_H_
#define PSRING_COMMON_CLUSTER_MODEL_PARTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protos/cluster.pb.h"

namespace psring {

// What a server listens for, each on an endpoint of its own; nobody has more.
inline constexpr int kMaxShardThreads = 64;

using Processes = google::protobuf::RepeatedPtrField<proto::Process>;

// Others will connect where a part says, and map the memory that it names. So
// all of these must be those of its process, which the coordinator has told of:
// INVALID_ARGUMENT names the process whose part says otherwise.

// `said`, by rank: the serialized ModelPart that each of `processes` has
// gathered as `name`. INTERNAL where these are not as many.
absl::StatusOr<std::vector<proto::ModelPart>> ReadParts(
    const std::string& name, absl::Span<const std::string> said,
    const Processes& processes);

// `told`: what somebody else says of `processes`. INVALID_ARGUMENT where these
// are not as many.
absl::StatusOr<std::vector<proto::ModelPart>> ToldParts(
    const Processes& told, const Processes& processes);

// Writes as many `parts` into `processes`.
void FillIn(std::vector<proto::ModelPart> parts, Processes* processes);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_MODEL_PARTS_H_
