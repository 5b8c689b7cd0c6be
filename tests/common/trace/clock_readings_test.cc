#include "common/trace/clock_readings.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace psring {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

std::vector<int64_t> AheadsOf(const std::vector<ClockReading>& readings) {
  std::vector<int64_t> aheads;
  for (const ClockReading& reading : readings) {
    aheads.push_back(reading.ahead_ns);
  }
  return aheads;
}

TEST(ClockReadings, AreJoinedByStraightLines) {
  const std::vector<ClockReading> readings = BestReadings(
      {{kSecond, 100, 40}, {3 * kSecond, 300, 40}, {4 * kSecond, -700, 40}});
  EXPECT_EQ(AheadAt(readings, 0), 100);
  EXPECT_EQ(AheadAt(readings, kSecond), 100);
  EXPECT_EQ(AheadAt(readings, 2 * kSecond), 200);
  EXPECT_EQ(AheadAt(readings, 3 * kSecond), 300);
  EXPECT_EQ(AheadAt(readings, 3 * kSecond + kSecond / 10), 200);
  EXPECT_EQ(AheadAt(readings, 9 * kSecond), -700);
}

// 15 microseconds a second is what clocks run apart by at most.
TEST(ClockReadings, AQuickOneNearbyReplacesASlowOne) {
  EXPECT_EQ(
      AheadsOf(BestReadings(
          {{0, 1, 100'000}, {kSecond, 2, 60'000}, {2 * kSecond, 3, 100'000}})),
      (std::vector<int64_t>{2}));
  EXPECT_EQ(
      AheadsOf(BestReadings(
          {{0, 1, 80'000}, {kSecond, 2, 60'000}, {2 * kSecond, 3, 80'000}})),
      (std::vector<int64_t>{1, 2, 3}));
}

TEST(ClockReadings, ComeInAnyOrder) {
  EXPECT_EQ(
      AheadsOf(BestReadings(
          {{3 * kSecond, 3, 40}, {kSecond, 1, 40}, {2 * kSecond, 2, 40}})),
      (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(AheadsOf(BestReadings({{kSecond, 1, 900}, {kSecond, 2, 400}})),
            (std::vector<int64_t>{2}));
}

// A process that is stopped for 3 s at 5 s, and one reading after it.
TEST(ClockReadings, UntilAStopTheClockIsWhatItWas) {
  const std::vector<ClockReading> readings =
      BestReadings({{2 * kSecond, 20, 90'000},
                    {5 * kSecond, 3 * kSecond + 20, 90'000},
                    {6 * kSecond, 3 * kSecond + 10, 40}});
  EXPECT_EQ(AheadAt(readings, kSecond), 20);
  EXPECT_EQ(AheadAt(readings, 4 * kSecond), 20);
  EXPECT_EQ(AheadAt(readings, 5 * kSecond - 1), 20);
  EXPECT_EQ(AheadAt(readings, 5 * kSecond), 3 * kSecond + 10);
  EXPECT_EQ(AheadAt(readings, 9 * kSecond), 3 * kSecond + 10);
}

}  // namespace
}  // namespace psring
