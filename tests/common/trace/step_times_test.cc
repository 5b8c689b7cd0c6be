#include "common/trace/step_times.h"

#include <gtest/gtest.h>

#include <ctime>

namespace psring {
namespace {

constexpr int64_t kMs = 1000000;

// Computes until `arrived`, waits until `went_on`.
WorkerStep StepOf(int64_t arrived, int64_t went_on, int last_server = -1) {
  WorkerStep step;
  step.whole = went_on * kMs;
  step.backward = arrived * kMs;
  step.arrived = (1000 + arrived) * kMs;
  step.went_on = (1000 + went_on) * kMs;
  step.last_server = last_server;
  return step;
}

TEST(StepTimes, AWaitIsForTheLastWorkerAndThenForCommunication) {
  const Explanation e =
      Explain({{{0, StepOf(10, 60)}}, {{0, StepOf(50, 62)}}}, {.sync = "bsp"});
  EXPECT_DOUBLE_EQ(e.workers[0].waiting, 0.040);
  EXPECT_DOUBLE_EQ(e.workers[0].exposed, 0.010);
  EXPECT_DOUBLE_EQ(e.workers[1].waiting, 0);
  EXPECT_DOUBLE_EQ(e.workers[1].exposed, 0.012);
  EXPECT_NEAR(e.workers[0].other(), 0, 1e-12);
  ASSERT_EQ(e.late.size(), 1u);
  EXPECT_EQ(e.late[0].who, "worker 1");
  EXPECT_EQ(e.late[0].steps, 1);
  EXPECT_DOUBLE_EQ(e.late[0].seconds, 0.040);
  EXPECT_EQ(e.total.steps, 2);
  EXPECT_DOUBLE_EQ(e.total.waiting, 0.040);
}

TEST(StepTimes, EncodingIsNeitherBackwardNorOther) {
  WorkerStep step = StepOf(10, 12);
  step.backward = 7 * kMs;
  step.encode = 3 * kMs;
  const Explanation e = Explain({{{0, step}}}, {.sync = "bsp"});
  EXPECT_DOUBLE_EQ(e.total.encode, 0.003);
  EXPECT_NEAR(e.total.other(), 0, 1e-12);
}

TEST(StepTimes, AWaitBeforeAnEvaluationLiesBesideTheSteps) {
  WorkerStep fast = StepOf(10, 12);
  fast.catch_up = 50 * kMs;
  const Explanation e =
      Explain({{{0, fast}}, {{0, StepOf(50, 62)}}}, {.sync = "async"});
  EXPECT_DOUBLE_EQ(e.workers[0].catch_up, 0.050);
  EXPECT_DOUBLE_EQ(e.workers[0].whole, 0.012);
  EXPECT_DOUBLE_EQ(e.workers[0].waiting, 0);
  EXPECT_DOUBLE_EQ(e.total.catch_up, 0.050);
}

TEST(StepTimes, ServersAreNamedForWhatIsExposedAlone) {
  const Explanation e = Explain(
      {{{0, StepOf(10, 60, 1)}}, {{0, StepOf(50, 62, 0)}}}, {.sync = "bsp"});
  ASSERT_EQ(e.servers.size(), 2u);
  EXPECT_EQ(e.servers[0].who, "ps 0");
  EXPECT_DOUBLE_EQ(e.servers[0].seconds, 0.012);
  EXPECT_EQ(e.servers[1].who, "ps 1");
  EXPECT_DOUBLE_EQ(e.servers[1].seconds, 0.010);
}

TEST(StepTimes, AsyncWaitsForNobody) {
  const Explanation e = Explain({{{0, StepOf(10, 60)}}, {{0, StepOf(50, 62)}}},
                                {.sync = "async"});
  EXPECT_TRUE(e.late.empty());
  EXPECT_DOUBLE_EQ(e.workers[0].exposed, 0.050);
}

// With a staleness of 1, step 1 of worker 0 waits for step 0 of worker 1.
TEST(StepTimes, StalenessWaitsForAnEarlierStep) {
  const WorkerSteps fast = {{0, StepOf(10, 11)}, {1, StepOf(20, 45)}};
  const WorkerSteps slow = {{0, StepOf(40, 41)}, {1, StepOf(80, 81)}};
  const Explanation e = Explain({fast, slow}, {.sync = "ssp", .staleness = 1});
  EXPECT_DOUBLE_EQ(e.workers[0].waiting, 0.020);
  EXPECT_DOUBLE_EQ(e.workers[0].exposed, 0.001 + 0.005);
  ASSERT_EQ(e.late.size(), 1u);
  EXPECT_EQ(e.late[0].who, "worker 1");
}

TEST(StepTimes, ABackupWorkersLatenessHoldsNobodyUp) {
  const Explanation e = Explain(
      {{{0, StepOf(10, 32)}}, {{0, StepOf(30, 32)}}, {{0, StepOf(90, 91)}}},
      {.sync = "bsp", .backup_workers = 1});
  ASSERT_EQ(e.late.size(), 1u);
  EXPECT_EQ(e.late[0].who, "worker 1");
  EXPECT_DOUBLE_EQ(e.workers[0].waiting, 0.020);
}

TEST(StepTimes, WhatIsNotKnownOfAStepIsLeftOut) {
  WorkerStep cut = StepOf(30, 40);
  cut.went_on = 0;
  const Explanation e =
      Explain({{{0, StepOf(10, 60)}, {1, StepOf(10, 60)}}, {{1, cut}}}, {});
  EXPECT_EQ(e.total.steps, 2);
  EXPECT_TRUE(e.late.empty());
  EXPECT_EQ(Explain({{}, {}}, {}).total.steps, 0);
}

// The coordinator explains while it watches the job.
TEST(StepTimes, AThousandWorkersTakeMillisecondsNotSeconds) {
  constexpr int kWorkers = 1024, kSteps = 64;
  std::vector<WorkerSteps> workers(kWorkers);
  for (int w = 0; w < kWorkers; ++w) {
    for (int s = 0; s < kSteps; ++s) {
      // Another worker is the last one in every step.
      workers[w][s] = StepOf(w == 3 * s ? 40 : 10, 50);
    }
  }
  const std::clock_t begin = std::clock();
  const Explanation e = Explain(workers, {.sync = "bsp"});
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
  ASSERT_EQ(e.late.size(), static_cast<size_t>(kSteps));
  for (const HeldUp& late : e.late) {
    EXPECT_EQ(late.steps, kWorkers - 1) << late.who;
    EXPECT_NEAR(late.seconds, 0.030 * (kWorkers - 1), 1e-6) << late.who;
  }
}

}  // namespace
}  // namespace psring
