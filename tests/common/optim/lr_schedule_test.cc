#include "common/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <string>

namespace psring {
namespace {

proto::LrSchedule Schedule(const std::string& kind) {
  proto::LrSchedule schedule;
  schedule.set_kind(kind);
  return schedule;
}

proto::LrSchedule Step(int64_t every, double factor) {
  proto::LrSchedule schedule = Schedule("step");
  schedule.set_decay_every_steps(every);
  schedule.set_decay_factor(factor);
  return schedule;
}

proto::LrSchedule Cosine(int64_t warmup, int64_t total) {
  proto::LrSchedule schedule = Schedule("cosine");
  schedule.set_warmup_steps(warmup);
  schedule.set_total_steps(total);
  return schedule;
}

TEST(LearningRateTest, ConstantIsTheBase) {
  EXPECT_EQ(LearningRate(Schedule("constant"), 0.1, 0), 0.1);
  EXPECT_EQ(LearningRate(Schedule("constant"), 0.1, 1'000'000), 0.1);
}

TEST(LearningRateTest, WarmUpClimbsLinearlyToTheBase) {
  proto::LrSchedule schedule = Schedule("constant");
  schedule.set_warmup_steps(4);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 0), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 2), 0.75);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 3), 1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 4), 1);
}

TEST(LearningRateTest, APartOfAStepIsBetweenItsNeighbours) {
  proto::LrSchedule schedule = Schedule("constant");
  schedule.set_warmup_steps(4);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 1.5), 0.625);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 3.5), 1);  // not above the base
  EXPECT_DOUBLE_EQ(LearningRate(Step(10, 0.5), 1, 9.5), 1);
  EXPECT_DOUBLE_EQ(LearningRate(Step(10, 0.5), 1, 10.5), 0.5);
}

TEST(LearningRateTest, StepDecaysAtEachMultiple) {
  const proto::LrSchedule schedule = Step(10, 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 9), 1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 10), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1, 39), 0.125);
}

TEST(LearningRateTest, CosineFallsFromTheWarmUpsEndToZero) {
  const proto::LrSchedule schedule = Cosine(10, 110);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 2, 10), 2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 2, 60), 1);
  EXPECT_NEAR(LearningRate(schedule, 2, 109), 0.0005, 0.0001);
  EXPECT_EQ(LearningRate(schedule, 2, 110), 0);
  EXPECT_EQ(LearningRate(schedule, 2, 1000), 0);
}

TEST(LearningRateTest, CosineMayBeAllWarmUp) {
  EXPECT_DOUBLE_EQ(LearningRate(Cosine(10, 10), 2, 9), 2);
  EXPECT_EQ(LearningRate(Cosine(10, 10), 2, 10), 0);
}

}  // namespace
}  // namespace psring
