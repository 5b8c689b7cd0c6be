#include "gpu/device.h"

namespace psring {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError(
      "built without CUDA: nvcc and nccl.h were not found. Install them "
      "(CUDA_HOME, /usr/local/cuda, or the nvidia-* wheels of the active "
      "python), then run ./psring build");
}

}  // namespace

bool BuiltWithCuda() { return false; }

std::string BuiltCudaVersion() { return "none"; }

absl::StatusOr<std::vector<DeviceInfo>> ListCudaDevices() { return NoCuda(); }

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index) {
  return NoCuda();
}

void ReleaseCudaDevice(int index) {}

}  // namespace psring
