#include "ps/step_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Verdict = StepGate::Verdict;

TEST(StepGate, BspReleasesNobodyUntilEveryWorkerPushed) {
  StepGate gate(proto::BSP, 0, 3, 0);
  EXPECT_EQ(gate.OnPush(2, 0), Verdict::kAccept);
  EXPECT_THAT(gate.Release(), IsEmpty());
  EXPECT_EQ(gate.OnPush(0, 0), Verdict::kAccept);
  EXPECT_THAT(gate.Release(), IsEmpty());
  EXPECT_THAT(gate.Awaited(), ElementsAre(1));
  EXPECT_EQ(gate.OnPush(1, 0), Verdict::kAccept);
  EXPECT_THAT(gate.Release(), ElementsAre(0, 1, 2));
  EXPECT_FALSE(gate.anyone_waiting());
}

TEST(StepGate, SspLetsAWorkerRunAtMostKStepsAhead) {
  StepGate gate(proto::SSP, 2, 2, 0);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(gate.OnPush(0, step), Verdict::kAccept);
    EXPECT_THAT(gate.Release(), ElementsAre(0));
  }
  EXPECT_EQ(gate.OnPush(0, 2), Verdict::kAccept);  // its clock: 3 ahead of 0
  EXPECT_THAT(gate.Release(), IsEmpty());
  EXPECT_EQ(gate.OnPush(1, 0), Verdict::kAccept);
  EXPECT_THAT(gate.Release(), ElementsAre(0, 1));
}

TEST(StepGate, AsyncHoldsNobody) {
  StepGate gate(proto::ASYNC, 0, 2, 0);
  for (int step = 0; step < 50; ++step) {
    EXPECT_EQ(gate.OnPush(1, step), Verdict::kAccept);
    EXPECT_THAT(gate.Release(), ElementsAre(1));
  }
}

TEST(StepGate, ARepeatCountsOnce) {
  StepGate gate(proto::BSP, 0, 2, 7);
  EXPECT_EQ(gate.OnPush(0, 7), Verdict::kAccept);
  EXPECT_EQ(gate.OnPush(0, 7), Verdict::kRepeat);
  EXPECT_EQ(gate.OnPush(0, 6), Verdict::kRepeat);
  EXPECT_THAT(gate.Release(), IsEmpty());
}

TEST(StepGate, AStepOutOfTurnIsRefused) {
  StepGate gate(proto::ASYNC, 0, 2, 0);
  EXPECT_EQ(gate.OnPush(0, 1), Verdict::kTooEarly);
  EXPECT_EQ(gate.OnPush(0, 0), Verdict::kAccept);
  // Not answered yet.
  EXPECT_EQ(gate.OnPush(0, 1), Verdict::kTooEarly);
}

// The definition, checked on random schedules: after any push, exactly those
// accepted workers are free whose clock is within the bound of the slowest's.
TEST(StepGate, KeepsItsDefinitionOnRandomSchedules) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 400; ++trial) {
    const int n = 1 + random() % 6;
    const int64_t k = random() % 4;
    const proto::Sync sync = static_cast<proto::Sync>(1 + random() % 3);
    const int64_t bound = sync == proto::BSP ? 0 : k;
    StepGate gate(sync, k, n, 0);
    std::vector<int64_t> clock(n, 0);
    std::vector<bool> waits(n, false);
    for (int event = 0; event < 200; ++event) {
      const int w = random() % n;
      if (waits[w]) continue;
      ASSERT_EQ(gate.OnPush(w, clock[w]), Verdict::kAccept);
      ++clock[w];
      waits[w] = true;
      const int64_t slowest = *std::min_element(clock.begin(), clock.end());
      std::vector<int> expected;
      for (int i = 0; i < n; ++i) {
        if (waits[i] && (sync == proto::ASYNC || clock[i] - slowest <= bound)) {
          expected.push_back(i);
          waits[i] = false;
        }
      }
      ASSERT_EQ(gate.Release(), expected);
      // Somebody can always go on: no schedule ends in a deadlock.
      ASSERT_TRUE(std::find(waits.begin(), waits.end(), false) != waits.end());
    }
  }
}

}  // namespace
}  // namespace psring
