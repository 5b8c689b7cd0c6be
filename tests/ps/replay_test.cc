#include "ps/replay.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

// The worker whose gradient is next, or -1.
int Next(Replay& replay, int piece) {
  auto next = replay.TakeNext(piece);
  EXPECT_TRUE(next.ok()) << next.status();
  return next->has_value() ? (*next)->turn.worker : -1;
}

TEST(Replay, HoldsGradientsBackUntilTheirTurn) {
  Replay replay({{{1, 0}, {0, 0}, {1, 1}}}, 2);
  ASSERT_TRUE(replay.Hold(0, {0, 0}, {}).ok());
  EXPECT_EQ(Next(replay, 0), -1);
  EXPECT_TRUE(replay.holds_any(0));
  EXPECT_EQ(replay.awaited(0), (UpdateTurn{1, 0}));
  ASSERT_TRUE(replay.Hold(0, {1, 0}, {}).ok());
  EXPECT_EQ(Next(replay, 0), 1);
  EXPECT_EQ(Next(replay, 0), 0);
  EXPECT_EQ(Next(replay, 0), -1);
  EXPECT_FALSE(replay.holds_any(0));
  ASSERT_TRUE(replay.Hold(0, {1, 1}, {}).ok());
  EXPECT_EQ(Next(replay, 0), 1);
  EXPECT_EQ(replay.awaited(0), std::nullopt);
}

TEST(Replay, PiecesFollowTheirOwnOrders) {
  Replay replay({{{0, 0}, {1, 0}}, {{1, 0}, {0, 0}}}, 2);
  ASSERT_TRUE(replay.Hold(1, {1, 0}, {}).ok());
  ASSERT_TRUE(replay.Hold(0, {1, 0}, {}).ok());
  EXPECT_EQ(Next(replay, 0), -1);
  EXPECT_EQ(Next(replay, 1), 1);
}

TEST(Replay, AGradientThatWasNotRecordedIsAnError) {
  Replay replay({{{0, 3}}}, 2);
  ASSERT_TRUE(replay.Hold(0, {0, 4}, {}).ok());
  EXPECT_EQ(replay.TakeNext(0).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(replay.Hold(0, {0, 5}, {}).code(),
            absl::StatusCode::kAlreadyExists);
}

TEST(Replay, AGradientAfterTheEndIsAnError) {
  Replay replay({{}}, 1);
  EXPECT_EQ(Next(replay, 0), -1);
  ASSERT_TRUE(replay.Hold(0, {0, 0}, {}).ok());
  EXPECT_EQ(replay.TakeNext(0).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace psring
