#include "collectives/stall_check.h"

#include <gtest/gtest.h>

#include <optional>

#include "collectives/call.h"
#include "common/clock.h"

namespace psring {
namespace {

const Time kStart = Time();

TEST(StallCheckTest, AsksNowAndThen) {
  StallCheck stalls;
  EXPECT_TRUE(stalls.Ask({1, "a"}, 1, kStart));
  EXPECT_FALSE(stalls.Ask({1, "a"}, 1, kStart + kAskEvery / 2));
  EXPECT_TRUE(stalls.Ask({1, "a"}, 2, kStart));
  EXPECT_TRUE(stalls.Ask({1, "a"}, 1, kStart + kAskEvery));
}

TEST(StallCheckTest, IsCertainWhenTwoAnswersAgree) {
  StallCheck stalls;
  const CallKey mine{1, "a"}, b{1, "b"}, c{1, "c"};
  stalls.Ask(mine, 1, kStart);
  EXPECT_FALSE(stalls.OnAnswer(mine, 1, b));
  EXPECT_FALSE(stalls.OnAnswer(mine, 1, c));
  EXPECT_FALSE(stalls.OnAnswer(mine, 1, std::nullopt));
  EXPECT_FALSE(stalls.OnAnswer(mine, 1, c));
  EXPECT_TRUE(stalls.OnAnswer(mine, 1, c));
}

TEST(StallCheckTest, HearsOnlyWhomItHasAsked) {
  StallCheck stalls;
  const CallKey mine{1, "a"}, theirs{1, "b"};
  EXPECT_FALSE(stalls.OnAnswer(mine, 1, theirs));
  EXPECT_FALSE(stalls.OnAnswer(mine, 1, theirs));
  stalls.Ask(mine, 1, kStart);
  stalls.OnAnswer(mine, 1, theirs);
  stalls.Forget(mine);
  EXPECT_FALSE(stalls.OnAnswer(mine, 1, theirs));
  EXPECT_TRUE(stalls.Ask(mine, 1, kStart));
}

}  // namespace
}  // namespace psring
