// Looks at a job from outside, without being a part of it.
#ifndef PSRING_COMMON_CLUSTER_LOOK_H_
#define PSRING_COMMON_CLUSTER_LOOK_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/cancellation.h"
#include "common/net/context.h"
#include "protos/cluster.pb.h"

namespace psring {

// What the coordinator at "tcp://10.0.0.1:7000" knows. Blocks. The context has
// the job's key, or tokens in a job without one. Errors: nobody answers within
// `timeout`, another key, another version.
absl::StatusOr<proto::JobView> LookAtJob(Context& context,
                                         const Cancellation& cancellation,
                                         const std::string& coordinator,
                                         absl::Duration timeout);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_LOOK_H_
