#include "common/optim/gradient_clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace psring {
namespace {

TEST(GradientClip, TheNormIsThatOfAllValues) {
  std::vector<float> values(37, 0.0f);  // more than two whole lines
  values[0] = 3.0f;
  values[36] = -4.0f;
  EXPECT_DOUBLE_EQ(GlobalNorm(values), 5.0);
  EXPECT_EQ(GlobalNorm({}), 0.0);
  // Beyond float32's range when squared.
  EXPECT_DOUBLE_EQ(GlobalNorm(std::vector<float>(4, 1e30f)),
                   2.0 * static_cast<double>(1e30f));
}

TEST(GradientClip, ScalesToTheNormAsTorchDoes) {
  std::vector<float> values = {3.0f, 4.0f};
  EXPECT_DOUBLE_EQ(ClipToNorm(1.0, absl::MakeSpan(values)), 5.0);
  const float factor = static_cast<float>(1.0 / (5.0 + 1e-6));
  EXPECT_EQ(values, (std::vector<float>{3.0f * factor, 4.0f * factor}));
}

TEST(GradientClip, LeavesASmallGradientAsItIs) {
  std::vector<float> values = {3.0f, 4.0f};
  EXPECT_DOUBLE_EQ(ClipToNorm(5.1, absl::MakeSpan(values)), 5.0);
  EXPECT_EQ(values, (std::vector<float>{3.0f, 4.0f}));
}

TEST(GradientClip, GivesAnInfiniteNormToItsCaller) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {1.0f, infinity};
  EXPECT_FALSE(std::isfinite(ClipToNorm(1.0, absl::MakeSpan(values))));
  EXPECT_EQ(values, (std::vector<float>{1.0f, infinity}));
}

}  // namespace
}  // namespace psring
