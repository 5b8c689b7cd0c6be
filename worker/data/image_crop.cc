#include "worker/data/image_crop.h"

#include <algorithm>
#include <cmath>

namespace psring {
namespace {

constexpr int kDraws = 10;
constexpr double kSmallestArea = 0.08;
constexpr double kNarrowest = 3.0 / 4;
constexpr double kWidest = 4.0 / 3;

ImageCrop InTheMiddle(int width, int height, double crop_width,
                      double crop_height) {
  ImageCrop crop;
  crop.width = std::clamp(static_cast<int>(std::lround(crop_width)), 1, width);
  crop.height =
      std::clamp(static_cast<int>(std::lround(crop_height)), 1, height);
  crop.left = (width - crop.width) / 2;
  crop.top = (height - crop.height) / 2;
  return crop;
}

// All of the picture that has an allowed shape.
ImageCrop LargestAllowed(int width, int height) {
  return InTheMiddle(width, height, std::min<double>(width, height * kWidest),
                     std::min<double>(height, width / kNarrowest));
}

}  // namespace

ImageCrop RandomCrop(int width, int height, SplitMix64& random) {
  const bool mirrored = random.Below(2) == 1;
  const double area = static_cast<double>(width) * height;
  for (int draw = 0; draw < kDraws; ++draw) {
    const double part = area * random.Uniform(kSmallestArea, 1);
    const double shape =
        std::exp(random.Uniform(std::log(kNarrowest), std::log(kWidest)));
    ImageCrop crop;
    crop.width = static_cast<int>(std::lround(std::sqrt(part * shape)));
    crop.height = static_cast<int>(std::lround(std::sqrt(part / shape)));
    if (crop.width < 1 || crop.width > width) continue;
    if (crop.height < 1 || crop.height > height) continue;
    crop.left = static_cast<int>(random.Below(width - crop.width + 1));
    crop.top = static_cast<int>(random.Below(height - crop.height + 1));
    crop.mirrored = mirrored;
    return crop;
  }
  ImageCrop crop = LargestAllowed(width, height);
  crop.mirrored = mirrored;
  return crop;
}

ImageCrop CentralCrop(int width, int height) {
  const double side = std::min(width, height) * 7.0 / 8;
  return InTheMiddle(width, height, side, side);
}

}  // namespace psring
