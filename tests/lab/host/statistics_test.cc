#include "lab/host/statistics.h"

#include <gtest/gtest.h>

#include <numeric>

namespace psring {
namespace {

TEST(Median, IsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({4, 1, 2, 100}), 3);
}

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> values(200);
  std::iota(values.rbegin(), values.rend(), 1);  // 1 to 200
  EXPECT_EQ(Percentile(values, 99), 198);
  EXPECT_EQ(Percentile(values, 50), 100);
  EXPECT_EQ(Percentile(values, 100), 200);
  EXPECT_EQ(Percentile(values, 0.1), 1);
}

TEST(Percentile, IsTheWorstOfTwenty) {
  std::vector<double> values(20, 1);
  values[7] = 5;
  EXPECT_EQ(Percentile(values, 99), 5);
}

}  // namespace
}  // namespace psring
