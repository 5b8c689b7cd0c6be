#include "worker/torch/torch_device.h"

#include <torch/cuda.h>
#include <torch/version.h>

#include "absl/strings/str_cat.h"
#include "gpu/device.h"

namespace psring {

absl::StatusOr<bool> WantsGpu(const DeviceWish& wish) {
  if (wish.kind == DeviceWish::Kind::kCpu) return false;
  absl::Status status = ListCudaDevices().status();
  if (status.ok() && !torch::cuda::is_available()) {
    status = absl::FailedPreconditionError(absl::StrCat(
        "libtorch ", TORCH_VERSION,
        " has no CUDA: build psring with, or point LD_LIBRARY_PATH at, a "
        "libtorch of this version that was built for CUDA"));
  }
  return DecideOnGpu(wish, status);
}

}  // namespace psring
