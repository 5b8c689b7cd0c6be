#include "gpu/driver_check.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// The first of _MACHINE_CODE in third_party/cuda.bzl.
constexpr double kOldestGeneration = 7.5;

}  // namespace

std::string CudaVersionName(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::Status CannotStartCuda(int driver, int built_with,
                             const std::string& error) {
  if (driver <= 0) {
    return absl::UnavailableError(absl::StrCat(
        "no CUDA driver works on this host: install NVIDIA's, which "
        "`nvidia-smi` shows (",
        error, ")"));
  }
  // A driver of the same major version runs newer programs, too.
  if (driver / 1000 < built_with / 1000) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the driver is for CUDA ", CudaVersionName(driver),
        ", and this build needs CUDA ", CudaVersionName(built_with),
        ": install a newer driver, or build psring with CUDA ", driver / 1000));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the CUDA driver does not work on this host: ", error,
                   ". See what `nvidia-smi` says"));
}

absl::Status CheckGeneration(const DeviceInfo& gpu) {
  double capability = 0;
  const bool known = absl::SimpleAtod(gpu.compute_capability, &capability);
  if (!known || capability >= kOldestGeneration) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "GPU ", gpu.index, " (", gpu.name, ") has compute capability ",
      gpu.compute_capability, ", and psring needs ", kOldestGeneration,
      " (Turing) or newer"));
}

}  // namespace psring
