#include "worker/data/digit_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

namespace psring {
namespace {

using Image = std::array<uint8_t, kDigitPixels>;

Image Drawn(int digit, uint64_t seed) {
  Image image;
  DigitPen().Draw(digit, SplitMix64(seed), absl::MakeSpan(image));
  return image;
}

// FNV-1a.
uint64_t Digest(const Image& image) {
  uint64_t digest = 0xcbf29ce484222325;
  for (uint8_t pixel : image) digest = (digest ^ pixel) * 0x100000001b3;
  return digest;
}

TEST(SplitMix64Test, GivesThePublishedSequence) {
  SplitMix64 random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
}

TEST(SplitMix64Test, StaysInItsRanges) {
  SplitMix64 random(3);
  double sum = 0, squares = 0;
  for (int i = 0; i < 10000; ++i) {
    const double uniform = random.Uniform(-2, 3);
    EXPECT_TRUE(uniform >= -2 && uniform < 3);
    const double bell = random.Bell();
    sum += bell;
    squares += bell * bell;
  }
  EXPECT_NEAR(sum / 10000, 0, 0.05);
  EXPECT_NEAR(squares / 10000, 1, 0.05);
}

TEST(DigitStrokesTest, KnowsSeveralWaysToWriteEachDigit) {
  std::map<int, int> ways;
  for (const Glyph& glyph : HandwrittenGlyphs()) {
    ++ways[glyph.digit];
    for (const Stroke& stroke : glyph.strokes) EXPECT_GE(stroke.size(), 2u);
  }
  ASSERT_EQ(ways.size(), 10u);
  for (const auto& [digit, count] : ways) {
    EXPECT_TRUE(digit >= 0 && digit <= 9);
    EXPECT_GE(count, 3) << digit;
  }
}

TEST(DigitStrokesTest, SmoothingCutsCornersAndKeepsTheEnds) {
  const Stroke smooth = Smooth({{0, 0}, {10, 0}, {10, 10}}, 1);
  const Stroke expected = {{0, 0}, {7.5, 0}, {10, 2.5}, {10, 10}};
  ASSERT_EQ(smooth.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(smooth[i].x, expected[i].x);
    EXPECT_EQ(smooth[i].y, expected[i].y);
  }
}

TEST(DigitStrokesTest, SmoothingKeepsACornerThatIsGivenTwice) {
  const Stroke smooth = Smooth({{0, 0}, {10, 0}, {10, 0}, {10, 10}}, 3);
  EXPECT_TRUE(std::any_of(smooth.begin(), smooth.end(),
                          [](PenPoint p) { return p.x == 10 && p.y == 0; }));
}

// A change of these digests changes the results of everybody's runs.
TEST(DigitPenTest, DrawsTheSamePixelsOnEveryMachine) {
  EXPECT_EQ(Digest(Drawn(0, 0)), 4861936997065207624u);
  EXPECT_EQ(Digest(Drawn(4, 123)), 13804804029420696436u);
  EXPECT_EQ(Digest(Drawn(8, 0xffffffffffffffff)), 10052683864851001453u);
}

TEST(DigitPenTest, DrawsEachDigitDifferentlyForEachSeed) {
  for (int digit = 0; digit < 10; ++digit) {
    EXPECT_EQ(Drawn(digit, 1), Drawn(digit, 1));
    EXPECT_NE(Drawn(digit, 1), Drawn(digit, 2));
  }
}

TEST(DigitPenTest, LeavesMostOfThePaperBlackAndSomeBright) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Image image = Drawn(seed % 10, seed);
    const auto bright = std::count_if(image.begin(), image.end(),
                                      [](uint8_t p) { return p > 128; });
    EXPECT_GT(bright, 15) << seed;
    EXPECT_LT(bright, 250) << seed;
  }
}

}  // namespace
}  // namespace psring
