#include "common/net/wake_count.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "common/net/doorbell.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

TEST(WakeCount, OnlyTheAddThatReachesTheNumberRings) {
  WakeCount count = {};
  EXPECT_FALSE(count.Add(1));  // its owner is awake
  ASSERT_TRUE(count.PrepareToSleep(4));
  EXPECT_FALSE(count.Add(2));
  EXPECT_TRUE(count.Add(2));
  EXPECT_FALSE(count.Add(1));
  EXPECT_EQ(count.count(), 6);
}

TEST(WakeCount, DoesNotSleepForWhatHasBeenCounted) {
  WakeCount count = {};
  count.Add(3);
  EXPECT_FALSE(count.PrepareToSleep(3));
  EXPECT_FALSE(count.Add(1));
  AwakeWait wait(/*has_core=*/true);
  EXPECT_TRUE(wait.Reaches(count, 4));
  EXPECT_FALSE(wait.Reaches(count, 5));
}

TEST(AwakeWait, StaysAwakeWhereWaitsAreShort) {
  AwakeWait wait;
  EXPECT_EQ(wait.limit(), absl::ZeroDuration());  // who knows
  for (int i = 0; i < 20; ++i) wait.Record(absl::Microseconds(50));
  EXPECT_GE(wait.limit(), absl::Microseconds(50));
  // One long one, as for a checkpoint, is forgotten soon.
  wait.Record(absl::Seconds(10));
  for (int i = 0; i < 8; ++i) wait.Record(absl::Microseconds(50));
  EXPECT_GE(wait.limit(), absl::Microseconds(50));
}

TEST(AwakeWait, SleepsAtOnceWhereWaitsAreLong) {
  AwakeWait wait;
  for (int i = 0; i < 20; ++i) wait.Record(absl::Microseconds(50));
  for (int i = 0; i < 20; ++i) wait.Record(absl::Milliseconds(5));
  EXPECT_EQ(wait.limit(), absl::ZeroDuration());
}

TEST(AwakeWait, StaysAwakeAMomentWhereItHasACore) {
  AwakeWait wait(/*has_core=*/true);
  for (int i = 0; i < 20; ++i) wait.Record(absl::Milliseconds(5));
  EXPECT_GT(wait.limit(), absl::ZeroDuration());
}

// What it measures by itself: a count that is there took no time.
TEST(AwakeWait, LearnsFromItsWaits) {
  WakeCount count = {};
  count.Add(1);
  AwakeWait wait;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(wait.Reaches(count, 1));
  EXPECT_GT(wait.limit(), absl::ZeroDuration());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(wait.Reaches(count, 2));
}

TEST(WakeCount, AnOwnerThatWasWokenByOthersIsNotRung) {
  WakeCount count = {};
  ASSERT_TRUE(count.PrepareToSleep(1));
  count.WakeUp();
  EXPECT_FALSE(count.Add(1));
}

// Sleeps on its doorbell until others have counted far enough.
class Sleeper {
 public:
  void Add() {
    if (count_.Add(1)) button_->Ring();
  }
  // False: that takes long, or for ever.
  bool Await(int64_t wanted) {
    const Time deadline = Soon();
    while (count_.count() < wanted) {
      if (Now() > deadline) return false;
      if (!count_.PrepareToSleep(wanted)) continue;
      doorbell_->Wait(doorbell_->fd(), deadline);
      count_.WakeUp();
      doorbell_->Clear();
    }
    return true;
  }

 private:
  WakeCount count_ = {};
  const std::unique_ptr<Doorbell> doorbell_ = *Doorbell::Create();
  const std::unique_ptr<DoorbellButton> button_ =
      *DoorbellButton::Open(getpid(), doorbell_->write_fd());
};

// One awaits three, who await it, thousands of times: a lost ring would take
// the deadline.
TEST(WakeCount, LosesNoRing) {
  constexpr int kTurns = 5000;
  Sleeper one;
  std::vector<Sleeper> three(3);
  std::vector<std::thread> threads;
  for (Sleeper& sleeper : three) {
    threads.emplace_back([&] {
      for (int turn = 1; turn <= kTurns; ++turn) {
        one.Add();
        if (!sleeper.Await(turn)) break;
      }
    });
  }
  int turn = 0;
  while (turn < kTurns && one.Await(3 * (turn + 1))) {
    ++turn;
    for (Sleeper& sleeper : three) sleeper.Add();
  }
  EXPECT_EQ(turn, kTurns);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace psring
