// Batch normalisation with the statistics of all workers' batches (Zhang et al.
// 2018, "Context Encoding for Semantic Segmentation"), as
// torch.nn.SyncBatchNorm's, on any device.
#ifndef PSRING_WORKER_MODELS_SYNC_BATCH_NORM_H_
#define PSRING_WORKER_MODELS_SYNC_BATCH_NORM_H_

#include <ATen/core/Tensor.h>

#include "worker/models/gather_statistics.h"

namespace psring {

// Of one layer; all are float32 [channels].
struct NormTensors {
  at::Tensor weight, bias;
  at::Tensor running_mean, running_variance;
};

// Normalises x, [batch, channels, height, width], float32 or of 16 bits, as in
// training, and updates the running statistics, which are the same on all
// workers. The gradient is the exact one of the sum of all workers' losses for
// x; for weight and bias it is this worker's part, as of every other layer.
// Workers may have batches of different sizes, and wait for each other once
// here and once in backward. `gather` lives until backward is done. Throws what
// it and libtorch throw.
at::Tensor SyncBatchNorm(const at::Tensor& x, const NormTensors& norm,
                         double momentum, double epsilon,
                         GatherStatistics& gather);

}  // namespace psring

#endif  // PSRING_WORKER_MODELS_SYNC_BATCH_NORM_H_
