#include "common/optim/job_plan.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

proto::JobSpec Spec() {
  proto::JobSpec spec;
  spec.set_dataset_size(1000);
  spec.set_batch_size(64);
  spec.set_epochs(3);
  spec.mutable_optimizer()->set_lr(0.1);
  return spec;
}

TEST(JobPlan, AnEpochShowsEveryWorkerItsShareOnce) {
  EXPECT_EQ(PlanOf(Spec(), 1).steps_per_epoch, 16);  // 15 batches and a part
  EXPECT_EQ(PlanOf(Spec(), 2).steps_per_epoch, 8);
  EXPECT_EQ(PlanOf(Spec(), 3).steps_per_epoch, 6);  // ceil(334 / 64)
  EXPECT_EQ(PlanOf(Spec(), 2).total_steps, 24);
}

TEST(JobPlan, StepsWinOverEpochs) {
  proto::JobSpec spec = Spec();
  spec.set_steps(5);
  EXPECT_EQ(PlanOf(spec, 2).total_steps, 5);
}

TEST(JobPlan, ScalesTheRateOnlyWhenAsked) {
  proto::JobSpec spec = Spec();
  EXPECT_EQ(PlanOf(spec, 4).optimizer.lr(), 0.1);
  spec.set_scale_lr(true);
  EXPECT_EQ(PlanOf(spec, 4).optimizer.lr(), 0.4);
  spec.set_backup_workers(2);  // two gradients make a step
  EXPECT_EQ(PlanOf(spec, 4).optimizer.lr(), 0.2);
}

TEST(JobPlan, TurnsEpochsOfTheScheduleIntoSteps) {
  proto::JobSpec spec = Spec();
  spec.set_warmup_epochs(0.5);
  spec.set_decay_every_epochs(2);
  const proto::LrSchedule schedule = PlanOf(spec, 2).optimizer.schedule();
  EXPECT_EQ(schedule.warmup_steps(), 4);
  EXPECT_EQ(schedule.decay_every_steps(), 16);
  EXPECT_EQ(schedule.total_steps(), 24);
}

}  // namespace
}  // namespace psring
