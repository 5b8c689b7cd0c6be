// In which numbers a model computes. Parameters and gradients that travel stay
// float32.
#ifndef PSRING_WORKER_TORCH_PRECISION_H_
#define PSRING_WORKER_TORCH_PRECISION_H_

#include <c10/core/Device.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

// kTf32: float32 whose products of matrices are rounded to TF32. kBf16, kFp16:
// libtorch's autocast, which keeps sums over many numbers in float32.
enum class Precision { kFp32, kTf32, kBf16, kFp16 };

inline constexpr char kPrecisions[] = "fp32, tf32, bf16, fp16";

// "fp32", "tf32", "bf16", "fp16".
absl::StatusOr<Precision> ParsePrecision(absl::string_view text);

// Whether a device takes it. `compute_capability`: of a GPU, "9.0"; empty: the
// CPU. INVALID_ARGUMENT says what it takes.
absl::Status CheckPrecision(Precision precision,
                            const std::string& compute_capability);

// Tells libtorch for the whole process how GPUs multiply: kFp32 without TF32,
// which cuDNN would take by itself. `deterministic`: the same bits in every
// run, where libtorch has a way, for which it sets a variable of cuBLAS unless
// the user has; else cuDNN tries out which way is fastest. Before cuBLAS is
// used.
void SetGpuModes(Precision precision, bool deterministic);

// While it lives, this thread computes in that precision on that device.
class PrecisionScope {
 public:
  PrecisionScope(Precision precision, c10::DeviceType device);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  const bool casts_;
  const c10::DeviceType device_;
};

}  // namespace psring

#endif  // PSRING_WORKER_TORCH_PRECISION_H_
