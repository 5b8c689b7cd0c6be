#include "worker/torch/torch_device.h"

#include <torch/cuda.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "gpu/device.h"
#include "worker/torch/torch_version.h"

namespace psring {

absl::StatusOr<bool> WantsGpu(const DeviceWish& wish) {
  if (wish.kind == DeviceWish::Kind::kCpu) return false;
  absl::Status status = ListCudaDevices().status();
  if (status.ok() && !torch::cuda::is_available()) {
    status = absl::FailedPreconditionError(absl::StrCat(
        "libtorch ", TorchVersion(),
        " has no CUDA: build psring with, or point LD_LIBRARY_PATH at, a "
        "libtorch of this version that was built for CUDA"));
  }
  std::error_code error;
  const bool has_driver = std::filesystem::exists("/dev/nvidiactl", error);
  return DecideOnGpu(wish, status, has_driver);
}

}  // namespace psring
