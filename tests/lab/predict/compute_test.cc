#include "lab/predict/compute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace psring {
namespace {

using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;

TEST(CutBuckets, CutsAsAModelsLayoutDoes) {
  constexpr int64_t kMi = 1 << 20;
  EXPECT_THAT(
      CutBuckets(16 * kMi, 25.0 * kMi),  // 64 MiB
      ElementsAre(25 * kMi / 4, 39 * kMi / 8, 39 * kMi / 16, 39 * kMi / 32,
                  39 * kMi / 64, 39 * kMi / 128, 39 * kMi / 128));
  EXPECT_THAT(CutBuckets(100, 160), ElementsAre(40, 40, 20));
  EXPECT_THAT(CutBuckets(3, 1), ElementsAre(1, 1, 1));
}

TEST(ReadyTimes, FollowTheForwardPassInProportionToTheElements) {
  const Workload workload = {
      .buckets = {100, 300}, .compute_s = {}, .forward_share = 0.2};
  EXPECT_THAT(ReadyTimes(workload, 10), ElementsAre(DoubleEq(4), DoubleEq(10)));
}

TEST(DrawComputeTimes, DrawsEachOfWhatWasMeasuredEquallyOften) {
  const Workload workload = {.buckets = {1}, .compute_s = {{3, 1, 20}}};
  std::mt19937_64 random(7);
  const auto drawn = DrawComputeTimes(workload, 30'000, random);
  for (const double measured : workload.compute_s[0]) {
    EXPECT_NEAR(std::count(drawn.begin(), drawn.end(), measured), 10'000, 400);
  }
}

TEST(DrawComputeTimes, OfOneMeasuredTimeIsThatTime) {
  std::mt19937_64 random(7);
  EXPECT_THAT(DrawComputeTimes({.buckets = {1}, .compute_s = {{4}}}, 3, random),
              Each(4));
}

TEST(DrawComputeTimes, OfWorkersThatDifferAreTheirOwn) {
  const Workload workload = {.buckets = {1}, .compute_s = {{1, 2}, {5}}};
  std::mt19937_64 random(7);
  for (int i = 0; i < 100; ++i) {
    const auto drawn = DrawComputeTimes(workload, 2, random);
    EXPECT_GE(drawn[0], 1);
    EXPECT_LE(drawn[0], 2);
    EXPECT_EQ(drawn[1], 5);
  }
  EXPECT_EQ(MeanCompute(workload), 3.25);
}

}  // namespace
}  // namespace psring
