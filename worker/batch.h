// Samples as the tensors that a model takes.
#ifndef PSRING_WORKER_BATCH_H_
#define PSRING_WORKER_BATCH_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/types/span.h"
#include "worker/data/dataset.h"

namespace psring {

struct Batch {
  at::Tensor images;  // float32 [batch, channels, height, width], normalised
  at::Tensor labels;  // int64 [batch]
};

// The samples in this order, on `device`. An index that the dataset has not is
// a bug and throws; so does libtorch.
Batch BatchOf(const Dataset& dataset, absl::Span<const int64_t> indices,
              at::Device device);

}  // namespace psring

#endif  // PSRING_WORKER_BATCH_H_
