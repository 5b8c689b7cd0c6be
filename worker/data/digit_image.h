// Draws one handwritten-like digit, always the same one for the same arguments.
#ifndef PSRING_WORKER_DATA_DIGIT_IMAGE_H_
#define PSRING_WORKER_DATA_DIGIT_IMAGE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/split_mix.h"
#include "worker/data/digit_strokes.h"

namespace psring {

inline constexpr int64_t kDigitSide = 28;
inline constexpr int64_t kDigitPixels = kDigitSide * kDigitSide;

// Writes digit after digit. Every image takes its own slant, turn, size, place,
// pen, tremble and dirt from the generator that it is given.
//
// The same pixels on every machine: the randomness is integer, and the rest is
// double arithmetic (+, -, *, / and sqrt, which IEEE 754 rounds correctly; no
// sin, exp or log), rounded at the end to 1/256. Even a compiler that fuses
// multiply and add would have to move a value by 1e-13 over such a bound.
class DigitPen {
 public:
  DigitPen();

  // Draws `digit` (0..9) in light ink on black; pixels.size() == kDigitPixels.
  void Draw(int digit, SplitMix64 random, absl::Span<uint8_t> pixels) const;

 private:
  std::vector<std::vector<Glyph>> glyphs_of_digit_;
};

}  // namespace psring

#endif  // PSRING_WORKER_DATA_DIGIT_IMAGE_H_
