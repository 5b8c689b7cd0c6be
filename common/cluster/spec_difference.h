// In which field two workers' job specs differ.
#ifndef PSRING_COMMON_CLUSTER_SPEC_DIFFERENCE_H_
#define PSRING_COMMON_CLUSTER_SPEC_DIFFERENCE_H_

#include <optional>
#include <string>

#include "protos/cluster.pb.h"

namespace psring {

// "lr: 0.02 here, 0.1 in the job": the first field that differs, with this
// process's value and the job's; nothing when they agree. `whose_here`,
// `whose_job`: what follows the values, as where both are others'.
std::optional<std::string> SpecDifference(
    const proto::JobSpec& here, const proto::JobSpec& job,
    const std::string& whose_here = "here",
    const std::string& whose_job = "in the job");

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_SPEC_DIFFERENCE_H_
