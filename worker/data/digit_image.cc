#include "worker/data/digit_image.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace psring {
namespace {

constexpr double kPixelsPerUnit = 0.2;  // the box of a glyph is 20 pixels high
constexpr double kCentre = (kDigitSide - 1) / 2.0;

// How one digit is written.
struct Hand {
  double xx, xy, yx, yy;  // from the glyph's box to pixels
  double shift_x, shift_y;
  double tremble;  // of a control point, in units of the box
  double radius;   // of the pen, in pixels
  double ink;      // brightness of the full stroke, to 1
};

Hand ChooseHand(SplitMix64& random) {
  Hand hand;
  const double size = kPixelsPerUnit * random.Uniform(0.9, 1);
  const double wide = size * random.Uniform(0.95, 1.15);
  const double slant = 0.1 * random.Bell() - 0.05;
  // The turn by an angle whose half has the tangent t.
  const double t = 0.03 * random.Bell();
  const double cosine = (1 - t * t) / (1 + t * t);
  const double sine = 2 * t / (1 + t * t);
  hand.xx = cosine * wide;
  hand.xy = cosine * slant * size - sine * size;
  hand.yx = sine * wide;
  hand.yy = sine * slant * size + cosine * size;
  hand.shift_x = kCentre + random.Uniform(-3.55, 3.55);
  hand.shift_y = kCentre + random.Uniform(-3.55, 3.55);
  hand.tremble = random.Uniform(1, 2.5);
  hand.radius = random.Uniform(1.2, 1.7);
  hand.ink = random.Uniform(0.8, 1);
  return hand;
}

PenPoint ToPixels(const Hand& hand, PenPoint p) {
  const double x = p.x - 50;
  const double y = p.y - 50;
  return {hand.xx * x + hand.xy * y + hand.shift_x,
          hand.yx * x + hand.yy * y + hand.shift_y};
}

// The squared distance of every pixel from the nearest stroke, where near.
using DistanceMap = std::array<double, kDigitPixels>;

double SquaredDistance(PenPoint p, PenPoint a, PenPoint b) {
  const double dx = b.x - a.x;
  const double dy = b.y - a.y;
  const double length2 = dx * dx + dy * dy;
  double t = 0;
  if (length2 > 0) {
    t = ((p.x - a.x) * dx + (p.y - a.y) * dy) / length2;
    t = std::clamp(t, 0.0, 1.0);
  }
  const double ex = a.x + t * dx - p.x;
  const double ey = a.y + t * dy - p.y;
  return ex * ex + ey * ey;
}

// A pixel index, from a coordinate that may lie outside.
int64_t Clip(double coordinate) {
  return static_cast<int64_t>(std::clamp(coordinate, 0.0, kDigitSide - 1.0));
}

void DrawSegment(PenPoint a, PenPoint b, double reach, DistanceMap& map) {
  const int64_t bottom = Clip(std::max(a.y, b.y) + reach);
  const int64_t right = Clip(std::max(a.x, b.x) + reach);
  for (int64_t y = Clip(std::min(a.y, b.y) - reach); y <= bottom; ++y) {
    for (int64_t x = Clip(std::min(a.x, b.x) - reach); x <= right; ++x) {
      double& nearest = map[y * kDigitSide + x];
      const PenPoint pixel = {static_cast<double>(x), static_cast<double>(y)};
      nearest = std::min(nearest, SquaredDistance(pixel, a, b));
    }
  }
}

void DrawStroke(const Stroke& stroke, const Hand& hand, SplitMix64& random,
                DistanceMap& map) {
  Stroke control;
  control.reserve(stroke.size());
  for (const PenPoint& p : stroke) {
    const double x = p.x + hand.tremble * random.Bell();
    const double y = p.y + hand.tremble * random.Bell();
    control.push_back(ToPixels(hand, {x, y}));
  }
  const Stroke line = Smooth(control, 2);
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    DrawSegment(line[i], line[i + 1], hand.radius + 1, map);
  }
}

uint8_t Level(double brightness) {
  return static_cast<uint8_t>(std::clamp(brightness, 0.0, 1.0) * 255 + 0.5);
}

// A square that the pen did not reach: paper that was wet or torn.
void Occlude(SplitMix64& random, absl::Span<uint8_t> pixels) {
  const int64_t side = 3 + random.Below(4);
  const int64_t left = 4 + random.Below(20 - side);
  const int64_t top = 4 + random.Below(20 - side);
  for (int64_t y = top; y < top + side; ++y) {
    std::fill_n(pixels.begin() + y * kDigitSide + left, side, uint8_t{0});
  }
}

void Sprinkle(SplitMix64& random, absl::Span<uint8_t> pixels) {
  const double grain = random.Uniform(0, 0.05);
  for (uint8_t& pixel : pixels) {
    pixel = Level(pixel / 255.0 + grain * random.Bell());
  }
}

}  // namespace

DigitPen::DigitPen() : glyphs_of_digit_(10) {
  for (Glyph& glyph : HandwrittenGlyphs()) {
    glyphs_of_digit_[glyph.digit].push_back(std::move(glyph));
  }
}

void DigitPen::Draw(int digit, SplitMix64 random,
                    absl::Span<uint8_t> pixels) const {
  const std::vector<Glyph>& glyphs = glyphs_of_digit_[digit];
  const Glyph& glyph = glyphs[random.Below(glyphs.size())];
  const Hand hand = ChooseHand(random);
  DistanceMap map;
  map.fill(kDigitSide * kDigitSide);
  for (const Stroke& stroke : glyph.strokes) {
    DrawStroke(stroke, hand, random, map);
  }
  for (int64_t i = 0; i < kDigitPixels; ++i) {
    const double cover = hand.radius + 0.5 - std::sqrt(map[i]);
    pixels[i] = Level(hand.ink * std::clamp(cover, 0.0, 1.0));
  }
  if (random.Below(50) == 0) Occlude(random, pixels);
  Sprinkle(random, pixels);
}

}  // namespace psring
