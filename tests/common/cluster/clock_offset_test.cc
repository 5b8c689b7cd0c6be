#include "common/cluster/clock_offset.h"

#include <gtest/gtest.h>

#include "common/clock.h"

namespace psring {
namespace {

Time At(int64_t us) { return Time() + absl::Microseconds(us); }

TEST(ClockOffset, IsExactWhereBothWaysTakeAsLong) {
  // Their clock is 1000 us ahead, each way takes 30 us, the answer 5 us.
  const ClockOffset offset = OffsetOf(At(100), At(1130), At(1135), At(165));
  EXPECT_EQ(offset.ahead, absl::Microseconds(1000));
  EXPECT_EQ(offset.round_trip, absl::Microseconds(60));
}

TEST(ClockOffset, IsNegativeWhereTheirClockIsBehind) {
  EXPECT_EQ(OffsetOf(At(1100), At(130), At(130), At(1160)).ahead,
            absl::Microseconds(-1000));
}

TEST(ClockOffset, IsOffByHalfTheRoundTripAtMost) {
  // All of the round trip's 200 us lie on one way.
  for (const auto& [heard, answered] : {std::pair{1300, 300}, {1100, 300}}) {
    const ClockOffset offset =
        OffsetOf(At(100), At(heard), At(heard), At(answered));
    EXPECT_LE(absl::AbsDuration(offset.ahead - absl::Microseconds(1000)),
              offset.round_trip / 2);
  }
}

TEST(ClockOffset, TheShortestRoundTripWins) {
  const ClockOffset slow = {absl::Microseconds(5), absl::Microseconds(90)};
  const ClockOffset fast = {absl::Microseconds(7), absl::Microseconds(20)};
  EXPECT_EQ(Better(std::nullopt, slow), slow);
  EXPECT_EQ(Better(slow, fast), fast);
  EXPECT_EQ(Better(fast, slow), fast);
}

TEST(ClockOffset, AShortRoundTripOfLongAgoKnowsLess) {
  const ClockOffset fast = {absl::Microseconds(7), absl::Microseconds(20),
                            At(0)};
  ClockOffset slow = {absl::Microseconds(5), absl::Microseconds(90), At(0)};
  slow.at = At(0) + absl::Seconds(2);
  EXPECT_EQ(Better(fast, slow), fast);
  slow.at = At(0) + absl::Seconds(3);
  EXPECT_EQ(Better(fast, slow), slow);
}

}  // namespace
}  // namespace psring
