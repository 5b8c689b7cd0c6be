// psring's own kernels, as calls. Each puts its work into `stream` and returns
// at once; the result is a cudaError_t.
#ifndef PSRING_GPU_KERNELS_H_
#define PSRING_GPU_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/optim/optimizer_formulas.h"

namespace psring {

// data[i] *= scale.
cudaError_t LaunchScale(float* data, float scale, int64_t num_elements,
                        cudaStream_t stream);

// Where an update's operands lie in device memory; slots that the optimizer
// does not have are null.
struct UpdateOperands {
  const float* gradient;
  float* parameters;
  float* slots[kMaxOptimizerSlots];
  int64_t num_elements;
};

// One update by gradient * scale.
cudaError_t LaunchUpdate(const OptimizerFormula& formula, float scale,
                         const UpdateOperands& operands, cudaStream_t stream);

}  // namespace psring

#endif  // PSRING_GPU_KERNELS_H_
