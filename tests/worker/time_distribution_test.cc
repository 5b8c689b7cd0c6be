#include "worker/time_distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace psring {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(TimeDistribution, OfFewTimesIsTheTimes) {
  TimeDistribution times;
  EXPECT_THAT(times.GroupMeans(4), IsEmpty());
  for (const int seconds : {3, 1, 2}) times.Add(absl::Seconds(seconds));
  EXPECT_THAT(times.GroupMeans(4), ElementsAre(1, 2, 3));
}

TEST(TimeDistribution, ManyBecomeMeansOfEquallyMany) {
  TimeDistribution times;
  for (const int seconds : {8, 1, 4, 2, 3, 90}) {
    times.Add(absl::Seconds(seconds));
  }
  EXPECT_THAT(times.GroupMeans(3), ElementsAre(1.5, 3.5, 49));
}

TEST(TimeDistribution, OfVeryManyIsStillTheirs) {
  TimeDistribution times;
  for (int i = 0; i < 100'000; ++i) times.Add(absl::Microseconds(i));
  const std::vector<double> means = times.GroupMeans(4);
  EXPECT_THAT(means,
              ElementsAre(DoubleNear(0.0125, 1e-4), DoubleNear(0.0375, 1e-4),
                          DoubleNear(0.0625, 1e-4), DoubleNear(0.0875, 1e-4)));
}

}  // namespace
}  // namespace psring
