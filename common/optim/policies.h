// Which of a job's settings go together. Pure, so that whoever reads a command
// line and whoever is handed a job by the coordinator say the same.
#ifndef PSRING_COMMON_OPTIM_POLICIES_H_
#define PSRING_COMMON_OPTIM_POLICIES_H_

#include "absl/status/status.h"
#include "protos/cluster.pb.h"

namespace psring {

// INVALID_ARGUMENT names the flag that is out of place and where it belongs, or
// the number that is out of its bounds (CheckPlan).
// `num_workers` 0: not known yet.
absl::Status CheckPolicies(const proto::JobSpec& spec, int num_workers);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_POLICIES_H_
