#include "lab/bench/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace psring {
namespace {

// Knuth's multiplicative hash, and a stride that tells iterations apart.
constexpr uint32_t kHash = 2654435761u;
constexpr uint32_t kStride = 40503u;

void FillScaled(float factor, float scale, int64_t iteration, int64_t first,
                float* out, int64_t size) {
  const uint32_t start = static_cast<uint32_t>(first) * kHash +
                         static_cast<uint32_t>(iteration) * kStride;
  for (int64_t k = 0; k < size; ++k) {
    const uint32_t hash = start + static_cast<uint32_t>(k) * kHash;
    const float base = static_cast<float>(static_cast<int>(hash >> 25) + 1);
    out[k] = (base * factor) * scale;
  }
}

}  // namespace

int64_t MaxExactRuns(int num_ranks) {
  constexpr double kMaxRuns = 32;
  constexpr double kLargestBase = 128;
  const double n = num_ranks;
  double odd = n;  // what is left of n without its factors of 2
  while (std::fmod(odd, 2) == 0) odd /= 2;
  // Partial sums are whole multiples, up to n times, of what the run before
  // left: a float32 holds those whose odd part is below 2^24.
  double mantissa = kLargestBase * n * (n + 1) / 2 * n;
  double largest = mantissa;
  int64_t runs = 1;
  while (static_cast<double>(runs) < kMaxRuns && mantissa <= std::exp2(24) &&
         largest <= std::exp2(127)) {
    ++runs;
    mantissa *= odd;
    largest *= n;
  }
  return runs;
}

void FillPattern(int rank, int64_t iteration, int64_t first,
                 absl::Span<float> out) {
  FillScaled(static_cast<float>(rank + 1), 1.0f, iteration, first, out.data(),
             static_cast<int64_t>(out.size()));
}

void FillPatternSum(int num_ranks, int64_t iteration, float scale,
                    int64_t first, absl::Span<float> out) {
  const int64_t factor = int64_t{num_ranks} * (num_ranks + 1) / 2;
  FillScaled(static_cast<float>(factor), scale, iteration, first, out.data(),
             static_cast<int64_t>(out.size()));
}

int64_t FindWrongSum(int num_ranks, int64_t iteration, int64_t runs,
                     float scale, absl::Span<const float> values) {
  scale *= std::pow(static_cast<float>(num_ranks) * scale,
                    static_cast<float>(runs - 1));
  std::vector<float> expected(std::min<size_t>(values.size(), 16 * 1024));
  for (size_t first = 0; first < values.size(); first += expected.size()) {
    const size_t size = std::min(expected.size(), values.size() - first);
    FillPatternSum(num_ranks, iteration, scale, static_cast<int64_t>(first),
                   {expected.data(), size});
    if (std::memcmp(expected.data(), values.data() + first,
                    size * sizeof(float)) == 0) {
      continue;
    }
    for (size_t k = 0; k < size; ++k) {
      if (expected[k] != values[first + k]) {
        return static_cast<int64_t>(first + k);
      }
    }
  }
  return -1;
}

}  // namespace psring
