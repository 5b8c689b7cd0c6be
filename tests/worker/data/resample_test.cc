#include "worker/data/resample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace psring {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// A picture of one row (or of equal rows), whose red is `levels`.
std::vector<uint8_t> Rows(const std::vector<uint8_t>& levels, int height) {
  std::vector<uint8_t> bytes;
  for (int y = 0; y < height; ++y) {
    for (const uint8_t level : levels) {
      bytes.insert(bytes.end(), {level, 0, 255, 77});
    }
  }
  return bytes;
}

std::vector<uint8_t> Resampled(const std::vector<uint8_t>& bytes, int width,
                               int height, int side, bool mirrored = false) {
  std::vector<uint8_t> out(3 * side * side);
  Resample({bytes.data(), width * 4, width, height}, side, mirrored,
           absl::MakeSpan(out));
  return out;
}

// The first row of the red channel, where all rows are equal.
std::vector<uint8_t> RedRow(const std::vector<uint8_t>& levels, int side,
                            bool mirrored = false) {
  const int width = static_cast<int>(levels.size());
  const auto out = Resampled(Rows(levels, 3), width, 3, side, mirrored);
  for (int i = 0; i < side * side; ++i) {
    EXPECT_EQ(out[i], out[i % side]) << "rows differ";
  }
  return {out.begin(), out.begin() + side};
}

// The wanted levels are those of Pillow 13: Image.fromarray(levels).resize(
// (side, side), Image.BILINEAR).
TEST(Resample, GivesPillowsPixels) {
  const std::vector<uint8_t> levels = {0, 10, 200, 255, 30, 90, 0};
  EXPECT_THAT(RedRow(levels, 7), ElementsAre(0, 10, 200, 255, 30, 90, 0));
  EXPECT_THAT(RedRow(levels, 3), ElementsAre(47, 165, 45));
  EXPECT_THAT(RedRow(levels, 2), ElementsAre(98, 90));
  EXPECT_THAT(RedRow(levels, 1), ElementsAre(99));
  EXPECT_THAT(RedRow({0, 100}, 4), ElementsAre(0, 25, 75, 100));
}

TEST(Resample, KeepsChannelsApart) {
  const auto out = Resampled(Rows({9, 9, 9}, 5), 3, 5, 2);
  EXPECT_THAT(std::vector<uint8_t>(out.begin(), out.begin() + 4), Each(9));
  EXPECT_THAT(std::vector<uint8_t>(out.begin() + 4, out.begin() + 8), Each(0));
  EXPECT_THAT(std::vector<uint8_t>(out.begin() + 8, out.end()), Each(255));
}

TEST(Resample, MirrorsWhatItShows) {
  EXPECT_THAT(RedRow({0, 100}, 4, /*mirrored=*/true),
              ElementsAre(100, 75, 25, 0));
}

TEST(Resample, KeepsFlatPicturesFlat) {
  for (const int side : {1, 5, 16, 100}) {
    for (const uint8_t level : {0, 1, 127, 254, 255}) {
      const std::vector<uint8_t> levels(61, level);
      EXPECT_THAT(RedRow(levels, side), Each(level)) << side;
    }
  }
}

TEST(Resample, ReadsNothingBesideThePart) {
  // The middle pixel of 3x3, all others being bright.
  std::vector<uint8_t> bytes(3 * 3 * 4, 255);
  for (int c = 0; c < 4; ++c) bytes[4 * 4 + c] = 11;
  std::vector<uint8_t> out(3 * 4 * 4);
  Resample({bytes.data() + 4 * 4, 3 * 4, 1, 1}, 4, false, absl::MakeSpan(out));
  EXPECT_THAT(out, Each(11));
}

}  // namespace
}  // namespace psring
