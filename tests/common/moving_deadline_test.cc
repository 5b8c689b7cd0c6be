#include "common/moving_deadline.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "gtest/gtest.h"

namespace psring {
namespace {

TEST(MovingDeadline, IsPutOffByAsMuchAsThereWasAtFirst) {
  const Time start = Now();
  MovingDeadline deadline = start + absl::Seconds(100);
  EXPECT_EQ(deadline.at(), start + absl::Seconds(100));
  absl::SleepFor(absl::Milliseconds(20));
  const Time later = Now();
  EXPECT_GE(deadline.PutOff(), later + absl::Seconds(99));
  EXPECT_GT(deadline.at(), start + absl::Seconds(100));
  EXPECT_FALSE(deadline.has_passed());
}

TEST(MovingDeadline, NeverMovesBack) {
  MovingDeadline passed = Now() - absl::Seconds(1);
  const Time at = passed.at();
  EXPECT_TRUE(passed.has_passed());
  EXPECT_GE(passed.PutOff(), at);
  EXPECT_TRUE(passed.has_passed());
  MovingDeadline never = Time::InfiniteFuture();
  EXPECT_EQ(never.PutOff(), Time::InfiniteFuture());
}

}  // namespace
}  // namespace psring
