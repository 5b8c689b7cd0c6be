#include "common/cluster/activity.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace psring {
namespace {

Time At(int seconds) { return Time() + absl::Seconds(seconds); }

std::string DoingAt(ActivityBoard& board, int seconds) {
  const char* doing = board.Look(At(seconds)).doing;
  return doing == nullptr ? "waiting" : doing;
}

TEST(Activity, IsStillForAsLongAsItSaysNothingNew) {
  ActivityBoard board;
  EXPECT_EQ(DoingAt(board, 0), "waiting");
  board.own().Work("computing");
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(DoingAt(board, i), "computing");
    EXPECT_EQ(board.Look(At(i)).still, absl::Seconds(i - 1));
  }
  board.own().Work("computing");  // the next step
  EXPECT_EQ(board.Look(At(6)).still, absl::ZeroDuration());
}

TEST(Activity, WaitingForOthersEndsWithItsScope) {
  ActivityBoard board;
  board.own().Work("computing");
  {
    const WaitingForOthers waiting(board.own());
    EXPECT_EQ(DoingAt(board, 1), "waiting");
    const WaitingForOthers inner(board.own());
  }
  EXPECT_EQ(DoingAt(board, 2), "computing");
}

// A script may wait in several threads.
TEST(Activity, WaitsAsLongAsAnyOfSeveralScopes) {
  ActivityBoard board;
  board.own().Work("running");
  auto first = std::make_unique<WaitingForOthers>(board.own());
  auto second = std::make_unique<WaitingForOthers>(board.own());
  first.reset();
  EXPECT_EQ(DoingAt(board, 1), "waiting");
  second.reset();
  EXPECT_EQ(DoingAt(board, 2), "running");
  EXPECT_EQ(board.Look(At(2)).still, absl::ZeroDuration());
}

TEST(Activity, SaysWhatItWaitsForOthersAtAndForHowLong) {
  ActivityBoard board;
  board.own().Work("computing");
  // What it computes is no waiting.
  for (int i = 1; i <= 20; ++i) {
    EXPECT_EQ(board.Look(At(i)).waits_at, nullptr);
  }
  {
    const WaitingForOthers waiting(board.own(), "a sum");
    for (int i = 21; i < 24; ++i) board.Look(At(i));
    const ActivityBoard::Report report = board.Look(At(24));
    EXPECT_EQ(report.doing, nullptr);
    EXPECT_STREQ(report.waits_at, "a sum");
    EXPECT_EQ(report.waited, absl::Seconds(3));
  }
  EXPECT_EQ(board.Look(At(25)).waits_at, nullptr);
}

// One thread's hang does not hide behind another's work.
TEST(Activity, TheThreadThatIsStillForLongestIsReported) {
  ActivityBoard board;
  auto shard = board.Add();
  shard->Work("serving");
  for (int i = 1; i <= 4; ++i) {
    board.own().Work("computing");
    const ActivityBoard::Report report = board.Look(At(i));
    EXPECT_STREQ(report.doing, i == 1 ? "computing" : "serving");
    EXPECT_EQ(report.still, absl::Seconds(i - 1));
  }
  shard.reset();
  EXPECT_EQ(DoingAt(board, 5), "computing");
}

}  // namespace
}  // namespace psring
