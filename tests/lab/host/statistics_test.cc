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

// From the tables that books print.
TEST(StudentsT, IsThatOfTheTables) {
  EXPECT_NEAR(StudentsT(0.05, 1), 12.706, 5e-4);
  EXPECT_NEAR(StudentsT(0.05, 2), 4.303, 5e-4);
  EXPECT_NEAR(StudentsT(0.05, 3), 3.182, 5e-4);
  EXPECT_NEAR(StudentsT(0.05, 4), 2.776, 5e-4);
  EXPECT_NEAR(StudentsT(0.02, 5), 3.365, 5e-4);
  EXPECT_NEAR(StudentsT(0.01, 10), 3.169, 5e-4);
  EXPECT_NEAR(StudentsT(0.05, 120), 1.980, 5e-4);
  EXPECT_NEAR(StudentsT(0.05, 100001), 1.960, 5e-4);
  EXPECT_NEAR(StudentsT(0.5, 1), 1, 1e-9);
}

}  // namespace
}  // namespace psring
