// How people write the ten digits, as pen strokes.
#ifndef PSRING_WORKER_DATA_DIGIT_STROKES_H_
#define PSRING_WORKER_DATA_DIGIT_STROKES_H_

#include <vector>

namespace psring {

// In a box of 100 x 100, x to the right, y downwards.
struct PenPoint {
  double x = 0;
  double y = 0;
};

// Control points of a curve that starts at the first, ends at the last and
// passes near the others; a point given twice makes a sharp corner.
using Stroke = std::vector<PenPoint>;

// One way to write a digit.
struct Glyph {
  int digit = 0;
  std::vector<Stroke> strokes;
};

// Every known way, several for each digit, ordered by digit.
std::vector<Glyph> HandwrittenGlyphs();

// The curve as short straight pieces: Chaikin's corner cutting (1974), `rounds`
// times, with both ends kept. Averages only, so the same on every machine.
Stroke Smooth(const Stroke& control, int rounds);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_DIGIT_STROKES_H_
