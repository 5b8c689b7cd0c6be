#include "worker/torch/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/cluster/environment.h"

namespace psring {
namespace {

// Autocast's functions got their device as an argument with 2.4.
#define PSRING_TORCH_HAS_AUTOCAST_OF_DEVICES \
  (TORCH_VERSION_MAJOR > 2 ||                \
   (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4))

void SetAutocast(c10::DeviceType device, bool enabled, at::ScalarType type) {
#if PSRING_TORCH_HAS_AUTOCAST_OF_DEVICES
  at::autocast::set_autocast_dtype(device, type);
  at::autocast::set_autocast_enabled(device, enabled);
#else
  if (device == c10::kCPU) {
    at::autocast::set_autocast_cpu_dtype(type);
    at::autocast::set_cpu_enabled(enabled);
  } else {
    at::autocast::set_autocast_gpu_dtype(type);
    at::autocast::set_enabled(enabled);
  }
#endif
}

// By Precision.
constexpr const char* kNames[] = {"fp32", "tf32", "bf16", "fp16"};

const char* NameOf(Precision precision) {
  return kNames[static_cast<int>(precision)];
}

}  // namespace

absl::StatusOr<Precision> ParsePrecision(absl::string_view text) {
  for (const Precision precision : {Precision::kFp32, Precision::kTf32,
                                    Precision::kBf16, Precision::kFp16}) {
    if (text == NameOf(precision)) return precision;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--precision: \"", text, "\" is none of ", kPrecisions));
}

absl::Status CheckPrecision(Precision precision,
                            const std::string& compute_capability) {
  if (precision == Precision::kFp32) return absl::OkStatus();
  if (compute_capability.empty()) {
    if (precision == Precision::kBf16) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--precision=", NameOf(precision),
                     " is for GPUs: the CPU takes fp32 and bf16"));
  }
  double capability = 0;
  const bool known = absl::SimpleAtod(compute_capability, &capability);
  if (known && (capability >= 8 || precision == Precision::kFp16)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--precision=", NameOf(precision),
                   " needs a GPU of compute capability 8.0, and this one has ",
                   compute_capability, ": it takes fp32 and fp16"));
}

void SetGpuModes(Precision precision, bool deterministic) {
  at::Context& context = at::globalContext();
  const bool tf32 = precision != Precision::kFp32;
  context.setAllowTF32CuBLAS(tf32);
  context.setAllowTF32CuDNN(tf32);
  context.setBenchmarkCuDNN(!deterministic);
  context.setDeterministicCuDNN(deterministic);
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/true);
  // Without it cuBLAS may choose another order in every run, and libtorch warns
  // at every call.
  if (deterministic) SetVariables({{"CUBLAS_WORKSPACE_CONFIG", ":4096:8"}});
}

PrecisionScope::PrecisionScope(Precision precision, c10::DeviceType device)
    : casts_(precision == Precision::kBf16 || precision == Precision::kFp16),
      device_(device) {
  if (!casts_) return;
  at::autocast::increment_nesting();
  SetAutocast(device_, true,
              precision == Precision::kBf16 ? at::kBFloat16 : at::kHalf);
}

PrecisionScope::~PrecisionScope() {
  if (!casts_) return;
  SetAutocast(device_, false, at::kBFloat16);
  // The weights that it has rounded change with the next step.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

}  // namespace psring
