#include "worker/data/image_crop.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace psring {
namespace {

TEST(RandomCrop, LiesInThePicture) {
  SplitMix64 random(1);
  for (const int width : {1, 2, 3, 10, 224, 5000}) {
    for (const int height : {1, 2, 7, 333}) {
      for (int i = 0; i < 200; ++i) {
        const ImageCrop crop = RandomCrop(width, height, random);
        EXPECT_GE(crop.left, 0);
        EXPECT_GE(crop.top, 0);
        EXPECT_GE(crop.width, 1);
        EXPECT_GE(crop.height, 1);
        EXPECT_LE(crop.left + crop.width, width);
        EXPECT_LE(crop.top + crop.height, height);
      }
    }
  }
}

TEST(RandomCrop, ShowsPartsOfAllAreasAndShapesAndPlaces) {
  constexpr int kDraws = 20000;
  SplitMix64 random(2);
  double area = 0;
  double smallest = 1;
  double largest = 0;
  double widest = 0;
  double narrowest = 9;
  int mirrored = 0;
  double left = 0;
  for (int i = 0; i < kDraws; ++i) {
    const ImageCrop crop = RandomCrop(1000, 1000, random);
    const double part = crop.width * crop.height / 1e6;
    const double shape = static_cast<double>(crop.width) / crop.height;
    area += part;
    smallest = std::min(smallest, part);
    largest = std::max(largest, part);
    widest = std::max(widest, shape);
    narrowest = std::min(narrowest, shape);
    mirrored += crop.mirrored ? 1 : 0;
    left += crop.left / std::max(1.0, 1000.0 - crop.width);
  }
  // Draws that do not fit are drawn again, so the mean is below 0.54.
  EXPECT_NEAR(area / kDraws, 0.48, 0.02);
  EXPECT_NEAR(smallest, 0.08, 0.002);
  EXPECT_NEAR(largest, 1, 0.03);
  EXPECT_NEAR(widest, 4.0 / 3, 0.01);
  EXPECT_NEAR(narrowest, 3.0 / 4, 0.01);
  EXPECT_NEAR(mirrored, kDraws / 2, kDraws / 50);
  EXPECT_NEAR(left / kDraws, 0.5, 0.02);
}

TEST(RandomCrop, IsTheSameForTheSameSeed) {
  SplitMix64 a(3);
  SplitMix64 b(3);
  for (int i = 0; i < 100; ++i) {
    const ImageCrop one = RandomCrop(500, 375, a);
    const ImageCrop other = RandomCrop(500, 375, b);
    EXPECT_EQ(one.left, other.left);
    EXPECT_EQ(one.width, other.width);
    EXPECT_EQ(one.mirrored, other.mirrored);
  }
}

TEST(RandomCrop, TakesTheMiddleOfAPictureThatNoDrawFits) {
  SplitMix64 random(4);
  for (int i = 0; i < 50; ++i) {
    const ImageCrop crop = RandomCrop(30, 3000, random);
    EXPECT_LE(crop.height, 40);
    EXPECT_LE(crop.width, 30);
  }
  // Of one pixel's height no shape is allowed but one or two pixels.
  const ImageCrop line = RandomCrop(1000, 1, random);
  EXPECT_EQ(line.height, 1);
  EXPECT_LE(line.width, 2);
}

TEST(CentralCrop, LeavesWhatIsLeftOf256PixelsFor224) {
  const ImageCrop crop = CentralCrop(500, 256);
  EXPECT_EQ(crop.width, 224);
  EXPECT_EQ(crop.height, 224);
  EXPECT_EQ(crop.left, 138);
  EXPECT_EQ(crop.top, 16);
  EXPECT_FALSE(crop.mirrored);
  EXPECT_EQ(CentralCrop(1, 9).width, 1);
}

}  // namespace
}  // namespace psring
