#include "worker/data/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace psring {
namespace {

constexpr int kBytes = 4;     // of a pixel
constexpr int kChannels = 3;  // of them that are read

// Which pixels of a line make one of the scaled line, and how much of each.
struct Taps {
  int first = 0;
  std::vector<float> weights;  // they sum to 1
};

// For a line of `size` pixels, scaled to `side`.
std::vector<Taps> TapsOf(int size, int side) {
  const double step = static_cast<double>(size) / side;
  const double reach = std::max(step, 1.0);
  std::vector<Taps> all(side);
  for (int i = 0; i < side; ++i) {
    const double centre = (i + 0.5) * step;
    const int begin = std::max(0, static_cast<int>(centre - reach + 0.5));
    const int end = std::min(size, static_cast<int>(centre + reach + 0.5));
    std::vector<double> weights;
    double sum = 0;
    for (int x = begin; x < end; ++x) {
      weights.push_back(std::max(0.0, 1 - std::abs(x + 0.5 - centre) / reach));
      sum += weights.back();
    }
    all[i].first = begin;
    for (const double weight : weights) {
      all[i].weights.push_back(static_cast<float>(weight / sum));
    }
  }
  return all;
}

// row[i] = the rows of `taps`, weighted.
void MixRows(const PixelView& from, const Taps& taps, std::vector<float>& row) {
  std::fill(row.begin(), row.end(), 0.0f);
  const uint8_t* bytes =
      from.bytes + static_cast<ptrdiff_t>(taps.first) * from.stride;
  float* const out = row.data();
  const size_t size = row.size();
  for (const float weight : taps.weights) {
    for (size_t i = 0; i < size; ++i) out[i] += weight * bytes[i];
    bytes += from.stride;
  }
}

// One scaled pixel of a row.
struct Colour {
  float channels[kChannels] = {};
};

Colour MixPixels(const std::vector<float>& row, const Taps& taps) {
  Colour colour;
  const float* pixel = row.data() + static_cast<ptrdiff_t>(taps.first) * kBytes;
  for (const float weight : taps.weights) {
    for (int c = 0; c < kChannels; ++c) colour.channels[c] += weight * pixel[c];
    pixel += kBytes;
  }
  return colour;
}

}  // namespace

void Resample(const PixelView& from, int side, bool mirrored,
              absl::Span<uint8_t> out) {
  const std::vector<Taps> across = TapsOf(from.width, side);
  const std::vector<Taps> down = TapsOf(from.height, side);
  const ptrdiff_t plane = static_cast<ptrdiff_t>(side) * side;
  std::vector<float> row(static_cast<size_t>(from.width) * kBytes);
  for (int y = 0; y < side; ++y) {
    MixRows(from, down[y], row);
    uint8_t* const line = out.data() + static_cast<ptrdiff_t>(y) * side;
    for (int x = 0; x < side; ++x) {
      const Colour colour = MixPixels(row, across[mirrored ? side - 1 - x : x]);
      for (int c = 0; c < kChannels; ++c) {
        line[c * plane + x] = static_cast<uint8_t>(colour.channels[c] + 0.5f);
      }
    }
  }
}

}  // namespace psring
