// Sums of a few numbers over all workers: metrics, not gradients.
#ifndef PSRING_COMMON_CLUSTER_WORKER_SUM_H_
#define PSRING_COMMON_CLUSTER_WORKER_SUM_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/cluster/member.h"

namespace psring {

// values[i] becomes the sum of all workers' values[i], in rank order: the same
// bits everywhere. `name`, the same on every worker, has not named a gather of
// this job before. Blocks; errors are Member::Gather's, and INVALID_ARGUMENT
// where a worker sums another number of values.
absl::Status SumOverWorkers(Member& member, const std::string& name,
                            absl::Span<double> values, Time deadline);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_WORKER_SUM_H_
