#include "lab/bench/pattern.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace psring {
namespace {

constexpr int64_t kSize = 40000;  // more than is compared at a time

std::vector<float> SumOfRanks(int ranks, int64_t iteration) {
  std::vector<float> sum(kSize, 0.0f), one(kSize);
  for (int rank = ranks - 1; rank >= 0; --rank) {
    FillPattern(rank, iteration, 0, absl::MakeSpan(one));
    for (int64_t i = 0; i < kSize; ++i) sum[i] += one[i];
  }
  return sum;
}

TEST(Pattern, SumsExactlyForUpToTheMostRanks) {
  EXPECT_EQ(FindWrongSum(3, 7, 1, 1.0f, SumOfRanks(3, 7)), -1);
  EXPECT_EQ(FindWrongSum(kMaxRanks, 1, 1, 1.0f, SumOfRanks(kMaxRanks, 1)), -1);
}

TEST(Pattern, ScalesOnce) {
  std::vector<float> mean = SumOfRanks(3, 0);
  for (float& value : mean) value *= 1.0f / 3.0f;
  EXPECT_EQ(FindWrongSum(3, 0, 1, 1.0f / 3.0f, mean), -1);
}

TEST(Pattern, FindsTheFirstWrongElement) {
  for (const int64_t wrong : {int64_t{0}, int64_t{17000}, kSize - 1}) {
    std::vector<float> sum = SumOfRanks(2, 5);
    sum[wrong] = std::nextafter(sum[wrong], 0.0f);
    sum.back() = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(FindWrongSum(2, 5, 1, 1.0f, sum), wrong);
  }
}

TEST(Pattern, TellsIterationsAndRanksApart) {
  EXPECT_NE(FindWrongSum(2, 6, 1, 1.0f, SumOfRanks(2, 5)), -1);
  EXPECT_NE(FindWrongSum(3, 5, 1, 1.0f, SumOfRanks(2, 5)), -1);
}

TEST(Pattern, StartsAnywhere) {
  std::vector<float> whole(100), part(60);
  FillPattern(1, 2, 0, absl::MakeSpan(whole));
  FillPattern(1, 2, 40, absl::MakeSpan(part));
  EXPECT_EQ(std::vector<float>(whole.begin() + 40, whole.end()), part);
}

// What the ranks' sums in place make of the pattern, in float32, in rank order.
std::vector<float> SumInPlace(int num_ranks, int64_t iteration, int64_t runs) {
  std::vector<float> sum = SumOfRanks(num_ranks, iteration);
  for (int64_t run = 1; run < runs; ++run) {
    for (float& value : sum) {
      const float left = value;
      for (int r = 1; r < num_ranks; ++r) value += left;
    }
  }
  return sum;
}

TEST(Pattern, SumsInPlaceStayExactForSoManyRuns) {
  for (const int ranks : {2, 3, 4, 5, 7, 12, 16, 32}) {
    const int64_t runs = MaxExactRuns(ranks);
    EXPECT_GE(runs, 4);
    const std::vector<float> sum = SumInPlace(ranks, 3, runs);
    EXPECT_EQ(FindWrongSum(ranks, 3, runs, 1.0f, sum), -1) << ranks;
    EXPECT_NE(FindWrongSum(ranks, 3, runs - 1, 1.0f, sum), -1) << ranks;
  }
  EXPECT_EQ(MaxExactRuns(2), 32);
  EXPECT_EQ(MaxExactRuns(kMaxRanks), 1);
}

}  // namespace
}  // namespace psring
