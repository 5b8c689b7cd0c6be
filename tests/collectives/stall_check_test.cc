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
  // One that waits for nothing twice is on its way.
  stalls.Ask(mine, 2, kStart);
  EXPECT_FALSE(stalls.OnAnswer(mine, 2, std::nullopt));
  EXPECT_FALSE(stalls.OnAnswer(mine, 2, std::nullopt));
}

TEST(StallCheckTest, HearsOnlyWhomItHasAsked) {
  StallCheck stalls;
  const CallKey mine{1, "a"}, theirs{1, "b"};
  EXPECT_FALSE(stalls.OnAnswer(mine, 1, theirs));
  EXPECT_FALSE(stalls.OnAnswer(mine, 1, theirs));
  for (const int rank : {0, 1}) {
    stalls.Ask(mine, rank, kStart);
    stalls.OnAnswer(mine, rank, theirs);
  }
  stalls.Forget(mine);
  for (const int rank : {0, 1}) {
    EXPECT_FALSE(stalls.OnAnswer(mine, rank, theirs));
    EXPECT_TRUE(stalls.Ask(mine, rank, kStart));
  }
}

}  // namespace
}  // namespace psring
