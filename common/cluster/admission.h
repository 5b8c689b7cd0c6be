// Whom a job takes in. Pure, and each question by itself.
#ifndef PSRING_COMMON_CLUSTER_ADMISSION_H_
#define PSRING_COMMON_CLUSTER_ADMISSION_H_

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "common/cluster/membership.h"
#include "protos/cluster.pb.h"

namespace psring {

// A process that has joined.
struct Seated {
  const proto::Process* process = nullptr;
  int wanted_rank = -1;
};

// Why a process cannot take part in a job that these have joined, or nothing.
std::optional<std::string> ObjectionTo(const proto::Join& join,
                                       const MembershipOptions& options,
                                       absl::Span<const Seated> seated);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_ADMISSION_H_
