#include "worker/torch/torch_device.h"

#include <ATen/Context.h>
#include <torch/cuda.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "gpu/device.h"
#include "gpu/driver_check.h"
#include "worker/torch/torch_version.h"

namespace psring {
namespace {

// Those that this worker may compute on.
absl::Status CheckDevices(const DeviceWish& wish) {
  const auto all = ListCudaDevices();
  if (!all.ok()) return all.status();
  for (const DeviceInfo& gpu : *all) {
    if (wish.index >= 0 && gpu.index != wish.index) continue;
    if (absl::Status s = CheckGeneration(gpu); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// psring finds a GPU, and libtorch none.
absl::Status LibtorchsReason() {
  if (at::Context::hasCUDART()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "libtorch ", TorchVersion(), " was built for CUDA ",
        CudaVersionName(static_cast<int>(at::Context::versionCUDART())),
        ", which does not start here: install a newer driver, or point "
        "LD_LIBRARY_PATH at a libtorch of this version for an older CUDA"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "libtorch ", TorchVersion(),
      " has no CUDA: build psring with, or point LD_LIBRARY_PATH at, a "
      "libtorch of this version that was built for CUDA"));
}

}  // namespace

absl::StatusOr<bool> WantsGpu(const DeviceWish& wish) {
  if (wish.kind == DeviceWish::Kind::kCpu) return false;
  absl::Status status = CheckDevices(wish);
  if (status.ok() && !torch::cuda::is_available()) status = LibtorchsReason();
  std::error_code error;
  const bool has_driver = std::filesystem::exists("/dev/nvidiactl", error);
  return DecideOnGpu(wish, status, has_driver);
}

}  // namespace psring
