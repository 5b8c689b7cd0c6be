// Whether batches are large enough for a model's batch norm.
#ifndef PSRING_WORKER_BATCH_NORM_CHECK_H_
#define PSRING_WORKER_BATCH_NORM_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "protos/cluster.pb.h"
#include "worker/models/classifier.h"

namespace psring {

// INVALID_ARGUMENT where a batch norm would take the mean of a single value in
// a batch of `smallest_batch`, an epoch's last. Where it takes that of a few,
// `warns` decides whether the log says so.
absl::Status CheckBatchNorm(const Classifier& model, const proto::JobSpec& spec,
                            int64_t smallest_batch, int num_workers,
                            bool warns);

}  // namespace psring

#endif  // PSRING_WORKER_BATCH_NORM_CHECK_H_
