#include "common/optim/gradient_clip.h"

#include <cmath>
#include <cstdint>

#include "common/model/reduce.h"
#include "common/model/target_clones.h"

namespace psring {
namespace {

constexpr int64_t kLanes = 16;

// lanes[k] += the squares of values k, k + 16, ...; n is a multiple of 16.
PSRING_TARGET_CLONES
void SquaresLoop(const float* values, int64_t n, double* lanes) {
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const double value = values[i + k];
      lanes[k] += value * value;
    }
  }
}

}  // namespace

double GlobalNorm(absl::Span<const float> values) {
  const int64_t size = static_cast<int64_t>(values.size());
  const int64_t whole = size / kLanes * kLanes;
  double lanes[kLanes] = {};
  SquaresLoop(values.data(), whole, lanes);
  double sum = 0;
  for (double lane : lanes) sum += lane;
  for (int64_t i = whole; i < size; ++i) {
    sum += static_cast<double>(values[i]) * values[i];
  }
  return std::sqrt(sum);
}

double ClipToNorm(double max_norm, absl::Span<float> values) {
  const double norm = GlobalNorm(values);
  const double factor = max_norm / (norm + 1e-6);
  if (std::isfinite(norm) && factor < 1) {
    Scale(values.data(), static_cast<float>(factor),
          static_cast<int64_t>(values.size()));
  }
  return norm;
}

}  // namespace psring
