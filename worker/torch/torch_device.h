// libtorch's side of a GPU.
#ifndef PSRING_WORKER_TORCH_TORCH_DEVICE_H_
#define PSRING_WORKER_TORCH_TORCH_DEVICE_H_

#include "absl/status/statusor.h"
#include "worker/torch/gpu_choice.h"

namespace psring {

// Whether this worker is to compute on a GPU. auto: where psring was built with
// CUDA, there is a GPU, and libtorch can use it. UNIMPLEMENTED, UNAVAILABLE and
// FAILED_PRECONDITION say which of these a wish for a GPU lacks.
absl::StatusOr<bool> WantsGpu(const DeviceWish& wish);

}  // namespace psring

#endif  // PSRING_WORKER_TORCH_TORCH_DEVICE_H_
