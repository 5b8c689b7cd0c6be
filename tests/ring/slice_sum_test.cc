#include "ring/slice_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace psring {
namespace {

constexpr int64_t kSegment = kSegmentElements;

Frame Filled(float value, Range segment) {
  Frame frame = Frame::OfSize(segment.size() * sizeof(float));
  const std::vector<float> values(segment.size(), value);
  std::memcpy(frame.data(), values.data(), frame.size());
  return frame;
}

std::vector<float> ValuesOf(const Frame& frame) {
  std::vector<float> values(frame.size() / sizeof(float));
  std::memcpy(values.data(), frame.data(), frame.size());
  return values;
}

// The sum depends on the order: 1e16 + 1 - 1e16 is 0, 1e16 - 1e16 + 1 is 1.
TEST(SliceSum, AddsInTheCanonicalOrderWhateverComesFirst) {
  const Range slice{32, 48};
  const std::vector<float> values = {1.0f, -1e16f, 1e16f, 3.0f};
  // Slice 1's order: rank 2, 3, 0, 1.
  const float expected =
      (((values[2] + values[3]) + values[0]) + values[1]) * 0.5f;
  ASSERT_NE(expected,
            (((values[0] + values[1]) + values[2]) + values[3]) * 0.5f);
  std::vector<int> others = {0, 2, 3};
  SliceSum sum(slice, 4, 1);
  do {  // every one of them is a collective of its own
    const std::vector<float> own(slice.size(), values[1]);
    for (int i = 0; i < 3; ++i) {
      const std::optional<Frame> all = sum.Add(
          others[i], slice, Filled(values[others[i]], slice), own.data(), 0.5f);
      ASSERT_EQ(all.has_value(), i == 2);
      if (i < 2) continue;
      EXPECT_EQ(ValuesOf(*all), std::vector<float>(slice.size(), expected));
    }
  } while (std::next_permutation(others.begin(), others.end()));
}

TEST(SliceSum, KeepsSegmentsApart) {
  const Range slice{16, 16 + kSegment + 32};
  const Range first{16, 16 + kSegment};
  const Range second{16 + kSegment, slice.end};
  const std::vector<float> own(kSegment, 100.0f);
  SliceSum sum(slice, 3, 0);
  EXPECT_FALSE(sum.Add(1, first, Filled(1, first), own.data(), 1.0f));
  EXPECT_FALSE(sum.Add(2, second, Filled(2, second), own.data(), 1.0f));
  const auto of_second = sum.Add(1, second, Filled(3, second), own.data(), 1);
  const auto of_first = sum.Add(2, first, Filled(4, first), own.data(), 1);
  ASSERT_TRUE(of_first.has_value() && of_second.has_value());
  EXPECT_EQ(ValuesOf(*of_second), std::vector<float>(32, 105.0f));
  EXPECT_EQ(ValuesOf(*of_first), std::vector<float>(kSegment, 105.0f));
}

// Rank 1 of 5 has the values of ranks 1, then 2, then 3 and 4, then 0.
TEST(BucketSum, AddsInTheCanonicalOrderWhicheverRoundComesFirst) {
  const Range bucket{0, 80};
  const std::vector<float> values = {1.0f, -1e16f, 1e16f, 3.0f, 0.5f};
  std::vector<float> expected;
  for (int slice = 0; slice < 5; ++slice) {
    float sum = values[(slice + 1) % 5];
    for (int i = 2; i <= 5; ++i) sum += values[(slice + i) % 5];
    expected.insert(expected.end(), 16, sum * 0.5f);
  }
  ASSERT_NE(expected.front(), expected.back());
  Frame third_and_fourth = Frame::OfSize(2 * 80 * sizeof(float));
  std::memcpy(third_and_fourth.data(), Filled(3.0f, bucket).data(), 320);
  std::memcpy(static_cast<char*>(third_and_fourth.data()) + 320,
              Filled(0.5f, bucket).data(), 320);
  BucketSum sum(80, 5, 1);
  std::vector<int> rounds = {0, 1, 2};
  do {
    std::vector<float> data(80, values[1]);
    sum.Begin(data.data());
    EXPECT_EQ(sum.rounds(), 0);
    for (const int round : rounds) {
      EXPECT_FALSE(sum.complete());
      sum.Add(round, round == 0   ? Filled(values[2], bucket)
                     : round == 1 ? third_and_fourth.Share()
                                  : Filled(values[0], bucket));
    }
    ASSERT_TRUE(sum.complete());
    sum.Finish(data.data(), 0.5f);
    EXPECT_EQ(data, expected);
  } while (std::next_permutation(rounds.begin(), rounds.end()));
}

TEST(BucketSum, ARoundThatComesEarlyIsNotYetKnown) {
  const Range bucket{0, 16};
  const std::vector<float> data(16, 1.0f);
  BucketSum sum(16, 8, 0);
  sum.Begin(data.data());
  sum.Add(1, Filled(2.0f, {0, 32}));
  EXPECT_EQ(sum.rounds(), 0);
  sum.Add(0, Filled(3.0f, bucket));
  EXPECT_EQ(sum.rounds(), 2);
  EXPECT_FALSE(sum.complete());
  std::vector<float> known(64);
  std::memcpy(known.data(), sum.Known(64).data(), 64 * sizeof(float));
  EXPECT_EQ(known[0], 1.0f);
  EXPECT_EQ(known[16], 3.0f);
  EXPECT_EQ(known[63], 2.0f);
}

}  // namespace
}  // namespace psring
