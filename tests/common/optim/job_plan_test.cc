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

TEST(JobPlan, DropsTheLastBatchWhenAskedAndKnowsTheSmallest) {
  proto::JobSpec spec = Spec();
  const int64_t each = (spec.dataset_size() + 1) / 2;
  EXPECT_EQ(PlanOf(spec, 2).smallest_batch, (each - 1) % 64 + 1);
  spec.set_steps(3);  // none of them an epoch's last
  EXPECT_EQ(PlanOf(spec, 2).smallest_batch, 64);
  spec.set_steps(0);
  spec.set_drop_last(true);
  EXPECT_EQ(PlanOf(spec, 2).steps_per_epoch, each / 64);
  EXPECT_EQ(PlanOf(spec, 2).smallest_batch, 64);
  EXPECT_EQ(PlanOf(spec, 2).total_steps, each / 64 * spec.epochs());
}

TEST(JobPlan, TheRestOfAnEpochMayBeLessThanABatch) {
  proto::JobSpec spec = Spec();
  spec.set_drop_last(true);
  spec.set_first_step(7);
  spec.mutable_first_cursor()->set_epoch(1);
  spec.mutable_first_cursor()->set_samples(spec.dataset_size() - 20);
  const JobPlan plan = PlanOf(spec, 2);
  EXPECT_EQ(plan.EpochOf(7).epoch, 2);
  EXPECT_EQ(plan.EpochOf(7).first_sample, 0);
  EXPECT_EQ(plan.total_steps, 7 + (spec.epochs() - 2) * plan.steps_per_epoch);
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
  spec.set_backup_workers(0);
  spec.set_sync(proto::ASYNC);  // one gradient makes an update
  EXPECT_EQ(PlanOf(spec, 4).optimizer.lr(), 0.1);
  spec.set_sync(proto::BSP);
  spec.set_local_steps(4);  // the worker's own
  EXPECT_EQ(PlanOf(spec, 4).optimizer.lr(), 0.1);
}

TEST(JobPlan, TurnsEpochsOfTheScheduleIntoSteps) {
  proto::JobSpec spec = Spec();
  spec.set_warmup_epochs(0.5);
  spec.set_decay_every_epochs(2);
  const proto::LrSchedule schedule = PlanOf(spec, 2).optimizer.schedule();
  EXPECT_EQ(schedule.warmup_steps(), 4);
  EXPECT_EQ(schedule.decay_every_steps(), 16);
  EXPECT_EQ(schedule.total_steps(), 24);
  spec.set_warmup_epochs(0.7);         // 5.6 steps
  spec.set_decay_every_epochs(0.001);  // less than one
  const proto::LrSchedule rounded = PlanOf(spec, 2).optimizer.schedule();
  EXPECT_EQ(rounded.warmup_steps(), 6);
  EXPECT_EQ(rounded.decay_every_steps(), 1);
}

// A run of Spec() that has stopped at `step`, with so much consumed.
proto::JobSpec Resumed(int64_t step, int64_t epoch, int64_t samples) {
  proto::JobSpec spec = Spec();
  spec.set_first_step(step);
  spec.mutable_first_cursor()->set_epoch(epoch);
  spec.mutable_first_cursor()->set_samples(samples);
  return spec;
}

TEST(JobPlan, KnowsTheEpochAndWhatIsConsumedAtAStep) {
  const JobPlan plan = PlanOf(Spec(), 2);
  EXPECT_EQ(plan.EpochOf(7).epoch, 0);
  EXPECT_EQ(plan.EpochOf(8).epoch, 1);
  EXPECT_EQ(plan.EpochOf(15).begin, 8);
  EXPECT_EQ(plan.EpochOf(15).end, 16);
  EXPECT_EQ(plan.CursorAt(15).epoch(), 1);
  EXPECT_EQ(plan.CursorAt(15).samples(), 7 * 128);
  EXPECT_EQ(plan.CursorAt(16).epoch(), 2);
  EXPECT_EQ(plan.CursorAt(16).samples(), 0);
}

TEST(JobPlan, AResumedRunOfTheSameSizeTakesTheSameSteps) {
  proto::JobSpec spec = Spec();
  spec.set_warmup_epochs(0.7);
  spec.mutable_optimizer()->mutable_schedule()->set_kind("cosine");
  for (const int workers : {1, 2, 3, 4, 7}) {
    const JobPlan whole = PlanOf(spec, workers);
    for (int64_t stop = 0; stop <= whole.total_steps; ++stop) {
      proto::JobSpec rest = spec;
      rest.set_first_step(stop);
      *rest.mutable_first_cursor() = whole.CursorAt(stop);
      const JobPlan plan = PlanOf(rest, workers);
      ASSERT_EQ(plan.total_steps, whole.total_steps);
      for (int64_t step = stop; step < whole.total_steps; ++step) {
        ASSERT_EQ(plan.RateAt(step), whole.RateAt(step));
        ASSERT_EQ(plan.EpochOf(step).epoch, whole.EpochOf(step).epoch);
        ASSERT_EQ(plan.EpochOf(step).end, whole.EpochOf(step).end);
        ASSERT_EQ(plan.CursorAt(step).samples(),
                  whole.CursorAt(step).samples());
      }
    }
  }
}

// Adam's bias correction depends on it.
TEST(JobPlan, CountsTheUpdatesOfAllRunsSoFar) {
  proto::JobSpec spec = Spec();
  EXPECT_EQ(PlanOf(spec, 4).UpdatesAt(6), 6);
  spec.set_sync(proto::ASYNC);
  const int64_t of_four = PlanOf(spec, 4).UpdatesAt(6);
  EXPECT_EQ(of_four, 24);
  spec.set_first_step(6);
  EXPECT_EQ(PlanOf(spec, 4).UpdatesAt(10), 40);
  spec.set_first_updates(of_four);
  EXPECT_EQ(PlanOf(spec, 2).UpdatesAt(6), 24);
  EXPECT_EQ(PlanOf(spec, 2).UpdatesAt(10), 32);
  spec.set_sync(proto::BSP);
  EXPECT_EQ(PlanOf(spec, 2).UpdatesAt(10), 28);
}

// A run that knows nothing but its first step, such as a script's.
TEST(JobPlan, WithoutACursorTheFirstStepTellsThePlace) {
  proto::JobSpec spec = Spec();
  spec.set_first_step(11);
  const JobPlan plan = PlanOf(spec, 2);
  EXPECT_EQ(plan.total_steps, 24);
  EXPECT_EQ(plan.CursorAt(11).epoch(), 1);
  EXPECT_EQ(plan.CursorAt(11).samples(), 3 * 128);
}

// Six steps of four workers: an epoch of four, and two of the next.
TEST(JobPlan, FewerWorkersTakeTheRestOfAnEpochAndEndWithTheEpochs) {
  const JobPlan plan = PlanOf(Resumed(6, 1, 512), 2);
  EXPECT_EQ(plan.steps_per_epoch, 8);
  EXPECT_EQ(plan.EpochOf(6).epoch, 1);
  EXPECT_EQ(plan.EpochOf(6).first_sample, 512);
  EXPECT_EQ(plan.EpochOf(6).end, 10);  // 244 samples each
  EXPECT_EQ(plan.EpochOf(10).epoch, 2);
  EXPECT_EQ(plan.EpochOf(10).first_sample, 0);
  EXPECT_EQ(plan.CursorAt(9).samples(), 512 + 3 * 128);
  EXPECT_EQ(plan.total_steps, 18);
  EXPECT_EQ(PlanOf(Resumed(8, 2, 0), 2).total_steps, 16);
  EXPECT_EQ(PlanOf(Resumed(50, 3, 0), 2).total_steps, 50);
  EXPECT_EQ(PlanOf(Resumed(50, 4, 512), 2).total_steps, 50);
}

TEST(JobPlan, TheSmallestBatchIsOfStepsThatAreMade) {
  proto::JobSpec spec = Spec();
  spec.set_epochs(1);
  EXPECT_EQ(PlanOf(spec, 2).smallest_batch, 52);  // 500 samples each
  spec = Resumed(6, 1, 600);
  EXPECT_EQ(PlanOf(spec, 2).smallest_batch, 8);  // 200 each of the rest
  spec.set_steps(9);                             // which has four steps
  EXPECT_EQ(PlanOf(spec, 2).smallest_batch, 64);
  spec.set_steps(10);
  EXPECT_EQ(PlanOf(spec, 2).smallest_batch, 8);
  spec = Resumed(6, 2, 0);
  EXPECT_EQ(PlanOf(spec, 2).smallest_batch, 52);
  spec.set_dataset_size(0);  // not known
  EXPECT_EQ(PlanOf(spec, 2).smallest_batch, 64);
}

TEST(JobPlan, ExchangesOfLocalStepsAreCountedFromTheRunsFirst) {
  proto::JobSpec spec = Resumed(6, 1, 512);
  EXPECT_EQ(FirstExchange(spec), 6);
  spec.set_local_steps(4);
  EXPECT_EQ(FirstExchange(spec), 0);
}

// The rate of a run that has not stopped.
double WholeRate(proto::JobSpec spec, int num_workers, int64_t step) {
  spec.set_first_step(0);
  spec.clear_first_cursor();
  return PlanOf(spec, num_workers).RateAt(step);
}

TEST(JobPlan, TheScheduleFollowsSamplesNotSteps) {
  proto::JobSpec spec = Resumed(6, 1, 512);
  spec.set_decay_every_epochs(2);
  spec.mutable_optimizer()->mutable_schedule()->set_kind("step");
  spec.mutable_optimizer()->mutable_schedule()->set_decay_factor(0.5);
  const JobPlan step = PlanOf(spec, 2);
  EXPECT_EQ(step.RateAt(9), 0.1);
  EXPECT_EQ(step.RateAt(10), 0.05);
  spec.mutable_optimizer()->mutable_schedule()->set_kind("cosine");
  const JobPlan cosine = PlanOf(spec, 2);
  EXPECT_EQ(cosine.RateAt(6), WholeRate(spec, 2, 12));
  EXPECT_GT(cosine.RateAt(17), 0);
  EXPECT_EQ(cosine.RateAt(18), 0);
}

TEST(JobPlan, WithStepsTheScheduleEndsWithTheLast) {
  proto::JobSpec spec = Resumed(6, 1, 512);
  spec.set_steps(9);
  spec.mutable_optimizer()->mutable_schedule()->set_kind("cosine");
  const JobPlan plan = PlanOf(spec, 2);
  EXPECT_EQ(plan.total_steps, 9);
  EXPECT_GT(plan.RateAt(8), 0);
  EXPECT_EQ(plan.RateAt(9), 0);
}

TEST(JobPlan, AStepThatBeginsBetweenTwoHasARateBetween) {
  proto::JobSpec spec = Resumed(6, 0, 384);  // one step and a half of four
  spec.set_warmup_epochs(1);
  const JobPlan plan = PlanOf(spec, 4);
  EXPECT_DOUBLE_EQ(plan.RateAt(6), 0.1 * 2.5 / 4);
}

}  // namespace
}  // namespace psring
