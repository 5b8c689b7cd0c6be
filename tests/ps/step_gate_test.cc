#include "ps/step_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using Decision = StepGate::Decision;
using Verdict = StepGate::Verdict;

// It counts, and closes these steps or frees these workers, in groups.
template <typename... Groups>
auto Releases(Groups... groups) {
  return AllOf(Field("verdict", &Decision::verdict, Verdict::kAccept),
               Field("released", &Decision::released, ElementsAre(groups...)),
               Field("late", &Decision::late, IsEmpty()));
}

// It counts, and nobody's wait ends.
auto Waits() { return Releases(); }

// Its step has closed; its worker waits for nothing.
auto IsLate(int worker) {
  return AllOf(Field("verdict", &Decision::verdict, Verdict::kAccept),
               Field("released", &Decision::released, IsEmpty()),
               Field("late", &Decision::late, ElementsAre(worker)));
}

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

TEST(StepGate, BspReleasesNobodyUntilEveryWorkerPushed) {
  BarrierGate gate(3, 0, /*backup_workers=*/0);
  EXPECT_THAT(gate.OnPush(2, 0), Waits());
  EXPECT_THAT(gate.OnPush(0, 0), Waits());
  EXPECT_THAT(gate.Awaited(), ElementsAre(1));
  EXPECT_THAT(gate.OnPush(1, 0), Releases(ElementsAre(0, 1, 2)));
  EXPECT_FALSE(gate.anyone_waiting());
}

TEST(StepGate, NobodyWaitsForAWorkerThatPushesNothing) {
  BarrierGate gate(4, 3, /*backup_workers=*/0, /*silent=*/{1, 3});
  EXPECT_THAT(gate.Awaited(), ElementsAre(0, 2));
  for (int step = 3; step < 6; ++step) {
    EXPECT_THAT(gate.OnPush(2, step), Waits());
    EXPECT_THAT(gate.Awaited(), ElementsAre(0));
    EXPECT_THAT(gate.OnPush(0, step), Releases(ElementsAre(0, 2)));
  }
}

TEST(StepGate, SspLetsAWorkerRunAtMostKStepsAhead) {
  BoundGate gate(2, 0, /*max_lead=*/2);
  for (int step = 0; step < 2; ++step) {
    EXPECT_THAT(gate.OnPush(0, step), Releases(ElementsAre(0)));
  }
  EXPECT_THAT(gate.OnPush(0, 2), Waits());  // its clock: 3 ahead of 0
  EXPECT_THAT(gate.OnPush(1, 0), Releases(ElementsAre(0, 1)));
}

TEST(StepGate, AsyncHoldsNobody) {
  BoundGate gate(2, 0, kUnlimited);
  for (int step = 0; step < 50; ++step) {
    EXPECT_THAT(gate.OnPush(1, step), Releases(ElementsAre(1)));
  }
}

TEST(StepGate, ARepeatCountsOnce) {
  BarrierGate gate(2, 7, /*backup_workers=*/0);
  EXPECT_THAT(gate.OnPush(0, 7), Waits());
  EXPECT_EQ(gate.OnPush(0, 7).verdict, Verdict::kRepeat);
  EXPECT_EQ(gate.OnPush(0, 6).verdict, Verdict::kRepeat);
  EXPECT_TRUE(gate.waiting(0));
}

TEST(StepGate, AStepOutOfTurnIsRefused) {
  BoundGate gate(2, 0, /*max_lead=*/0);
  EXPECT_EQ(gate.OnPush(0, 1).verdict, Verdict::kTooEarly);
  EXPECT_THAT(gate.OnPush(0, 0), Waits());
  // Not answered yet.
  EXPECT_EQ(gate.OnPush(0, 1).verdict, Verdict::kTooEarly);
}

TEST(StepGate, BackupWorkersCloseAStepAtTheFirstGradientsAndDropTheRest) {
  BarrierGate gate(3, 0, /*backup_workers=*/1);
  EXPECT_THAT(gate.OnPush(2, 0), Waits());
  EXPECT_THAT(gate.Awaited(), ElementsAre(0, 1));
  EXPECT_THAT(gate.OnPush(0, 0), Releases(ElementsAre(0, 2)));
  EXPECT_THAT(gate.OnPush(1, 0), IsLate(1));
  EXPECT_EQ(gate.next_step(1), 1);
  EXPECT_FALSE(gate.waiting(1));
  EXPECT_EQ(gate.OnPush(1, 0).verdict, Verdict::kRepeat);
}

TEST(StepGate, ALateWorkerGoesOnWithTheOpenStep) {
  BarrierGate gate(3, 0, /*backup_workers=*/1);
  for (int step = 0; step < 5; ++step) {
    EXPECT_THAT(gate.OnPush(0, step), Waits());
    EXPECT_THAT(gate.OnPush(1, step), Releases(ElementsAre(0, 1)));
  }
  EXPECT_THAT(gate.OnPush(2, 0), IsLate(2));
  EXPECT_EQ(gate.next_step(2), 5);
  EXPECT_THAT(gate.OnPush(2, 5), Waits());
  EXPECT_THAT(gate.OnPush(1, 5), Releases(ElementsAre(1, 2)));
}

// Another piece of the model has told its worker of a step that is not open
// here yet.
TEST(StepGate, AGradientOfALaterStepIsHeldUntilItsStepIsOpen) {
  BarrierGate gate(3, 0, /*backup_workers=*/1);
  EXPECT_THAT(gate.OnPush(2, 1), Waits());
  EXPECT_THAT(gate.OnPush(0, 0), Waits());
  EXPECT_THAT(gate.OnPush(1, 0), Releases(ElementsAre(0, 1)));
  EXPECT_TRUE(gate.waiting(2));
  EXPECT_THAT(gate.OnPush(1, 1), Releases(ElementsAre(1, 2)));
}

// There is none after it to wait for; a worker that sends it is out of its
// mind.
TEST(StepGate, TheLargestNumberIsNoStep) {
  BarrierGate gate(3, 0, /*backup_workers=*/1);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(gate.OnPush(2, most).verdict, Verdict::kTooEarly);
  EXPECT_EQ(gate.clock(2), 0);
  EXPECT_THAT(gate.OnPush(2, most - 1), Waits());
  EXPECT_EQ(gate.clock(2), most);
}

TEST(StepGate, OfHeldGradientsTheFirstCloseTheStepAndTheRestAreLate) {
  BarrierGate gate(3, 0, /*backup_workers=*/2);
  EXPECT_THAT(gate.OnPush(2, 1), Waits());
  EXPECT_THAT(gate.OnPush(0, 1), Waits());
  const Decision decision = gate.OnPush(1, 0);
  EXPECT_EQ(decision.verdict, Verdict::kAccept);
  EXPECT_THAT(decision.released, ElementsAre(ElementsAre(1), ElementsAre(2)));
  EXPECT_THAT(decision.late, ElementsAre(0));
  EXPECT_FALSE(gate.anyone_waiting());
  EXPECT_EQ(gate.next_step(0), 2);
}

// The definition of backup workers, checked on random schedules over several
// pieces: every step of every piece closes with N-b gradients of that step, and
// all workers end, whatever they leave out.
TEST(StepGate, BackupWorkersCloseEveryStepOfEveryPieceOnRandomSchedules) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const int n = 2 + random() % 5;
    const int backup = 1 + random() % (n - 1);
    const int num_pieces = 1 + random() % 3;
    const int64_t total = 15;
    std::vector<BarrierGate> gates(num_pieces, BarrierGate(n, 0, backup));
    std::vector<int64_t> step(n, 0), told(n, 0);
    std::vector<int> pushed(n, 0), answered(n, 0);
    const auto answer = [&](int piece, int w, int64_t next_step) {
      told[w] = std::max(told[w], next_step);
      if (++answered[w] < num_pieces) return;
      ASSERT_GT(told[w], step[w]);
      step[w] = told[w];
      pushed[w] = answered[w] = 0;
    };
    while (true) {
      std::vector<int> able;
      for (int w = 0; w < n; ++w) {
        if (step[w] < total && pushed[w] < num_pieces) able.push_back(w);
      }
      if (able.empty()) break;
      const int w = able[random() % able.size()];
      const int piece = pushed[w]++;
      const int64_t open = gates[piece].awaited_step();
      const Decision decision = gates[piece].OnPush(w, step[w]);
      ASSERT_EQ(decision.verdict, Verdict::kAccept);
      int64_t closes = open;
      for (const std::vector<int>& closed : decision.released) {
        ++closes;
        ASSERT_EQ(static_cast<int>(closed.size()), n - backup);
        for (int c : closed) {
          ASSERT_EQ(gates[piece].clock(c), closes);
          answer(piece, c, closes);
        }
      }
      ASSERT_EQ(gates[piece].awaited_step(), closes);
      for (int late : decision.late) {
        ASSERT_LE(gates[piece].clock(late), closes);
        answer(piece, late, gates[piece].next_step(late));
      }
    }
    for (int w = 0; w < n; ++w) ASSERT_EQ(step[w], total);
    for (const BarrierGate& gate : gates) ASSERT_EQ(gate.awaited_step(), total);
  }
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
    proto::JobSpec spec;
    spec.set_sync(sync);
    spec.set_staleness(k);
    const std::unique_ptr<StepGate> gate = MakeStepGate(spec, n);
    std::vector<int64_t> clock(n, 0);
    std::vector<bool> waits(n, false);
    for (int event = 0; event < 200; ++event) {
      const int w = random() % n;
      if (waits[w]) continue;
      const Decision decision = gate->OnPush(w, clock[w]);
      ASSERT_EQ(decision.verdict, Verdict::kAccept);
      ASSERT_THAT(decision.late, IsEmpty());
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
      if (expected.empty()) {
        ASSERT_THAT(decision.released, IsEmpty());
      } else {
        ASSERT_THAT(decision.released, ElementsAre(expected));
      }
      // Somebody can always go on: no schedule ends in a deadlock.
      ASSERT_TRUE(std::find(waits.begin(), waits.end(), false) != waits.end());
    }
  }
}

TEST(MakeStepGate, TakesTheJobsFirstStepBackupAndSilentWorkers) {
  proto::JobSpec spec;
  spec.set_sync(proto::BSP);
  spec.set_first_step(7);
  spec.set_backup_workers(1);
  const std::unique_ptr<StepGate> gate = MakeStepGate(spec, 4, /*silent=*/{3});
  EXPECT_EQ(gate->awaited_step(), 7);
  EXPECT_THAT(gate->Awaited(), ElementsAre(0, 1, 2));
  EXPECT_THAT(gate->OnPush(2, 7), Waits());
  EXPECT_THAT(gate->OnPush(0, 7), Releases(ElementsAre(0, 2)));
  spec.set_sync(proto::ASYNC);
  EXPECT_EQ(MakeStepGate(spec, 2)->next_step(1), 7);
}

// A worker that has done its part holds nobody up any more.
TEST(BoundGate, ReleasesThoseWhoWaitForAWorkerThatLeaves) {
  proto::JobSpec spec;
  spec.set_sync(proto::SSP);
  spec.set_staleness(1);
  const std::unique_ptr<StepGate> gate = MakeStepGate(spec, 3);
  for (const int w : {0, 1}) {
    EXPECT_THAT(gate->OnPush(w, 0).released, ElementsAre(ElementsAre(w)));
    EXPECT_THAT(gate->OnPush(w, 1).released, IsEmpty());
  }
  EXPECT_THAT(gate->OnWorkerLeft(2), ElementsAre(0, 1));
  EXPECT_THAT(gate->OnPush(0, 2).released, ElementsAre(ElementsAre(0)));
  EXPECT_THAT(gate->OnPush(0, 3).released, IsEmpty());  // worker 1 is behind
}

// Its last push is as far ahead as it may be.
TEST(BoundGate, AWorkerThatLeavesWaitsNoMore) {
  BoundGate gate(2, 0, /*max_lead=*/0);
  EXPECT_THAT(gate.OnPush(0, 0), Waits());
  EXPECT_THAT(gate.OnWorkerLeft(0), IsEmpty());
  EXPECT_FALSE(gate.waiting(0));
  EXPECT_FALSE(gate.anyone_waiting());
  EXPECT_THAT(gate.OnPush(1, 0), Releases(ElementsAre(1)));
}

TEST(BarrierGate, NeedsEveryGradientWhoeverLeaves) {
  proto::JobSpec spec;
  spec.set_sync(proto::BSP);
  const std::unique_ptr<StepGate> gate = MakeStepGate(spec, 2);
  EXPECT_THAT(gate->OnPush(0, 0).released, IsEmpty());
  EXPECT_THAT(gate->OnWorkerLeft(1), IsEmpty());
}

}  // namespace
}  // namespace psring
