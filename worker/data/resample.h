// Pixels in another size.
#ifndef PSRING_WORKER_DATA_RESAMPLE_H_
#define PSRING_WORKER_DATA_RESAMPLE_H_

#include <cstdint>

#include "absl/types/span.h"

namespace psring {

// Rows of pixels of four bytes, which somebody else holds: red, green, blue,
// and one that nobody reads.
struct PixelView {
  const uint8_t* bytes = nullptr;
  int stride = 0;  // bytes from one row to the next
  int width = 0;   // pixels, at least 1
  int height = 0;  // pixels, at least 1
};

// Fills `out`, [3, side, side], red, green and blue: bilinear with
// antialiasing, as Pillow and torchvision scale. A pixel is the mean of what
// lies less than one (smaller: one of its own) pixel from it, weighted by a
// triangle, and rounded once. `mirrored`: left and right are swapped.
void Resample(const PixelView& from, int side, bool mirrored,
              absl::Span<uint8_t> out);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_RESAMPLE_H_
