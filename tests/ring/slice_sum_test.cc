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

}  // namespace
}  // namespace psring
