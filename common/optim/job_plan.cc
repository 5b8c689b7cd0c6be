#include "common/optim/job_plan.h"

#include <algorithm>
#include <cmath>

#include "common/optim/lr_schedule.h"

namespace psring {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The steps in which num_workers take `samples` together.
int64_t StepsFor(int64_t samples, int num_workers, int64_t batch_size) {
  return CeilDivide(CeilDivide(samples, num_workers), batch_size);
}

proto::SampleCursor FirstCursor(const proto::JobSpec& spec,
                                const JobPlan& plan) {
  if (spec.has_first_cursor()) return spec.first_cursor();
  proto::SampleCursor cursor;
  cursor.set_epoch(spec.first_step() / plan.steps_per_epoch);
  cursor.set_samples(spec.first_step() % plan.steps_per_epoch *
                     plan.global_batch);
  return cursor;
}

// `rest_steps`: those of the rest of the first epoch, if it has begun.
void PlaceFirstStep(const proto::SampleCursor& cursor, int64_t first_step,
                    int64_t rest_steps, JobPlan& plan) {
  plan.first_step = plan.whole_step = first_step;
  plan.whole_epoch = cursor.epoch();
  if (cursor.samples() <= 0) return;
  plan.first_sample = cursor.samples();
  plan.whole_step += rest_steps;
  ++plan.whole_epoch;
}

int64_t TotalSteps(const proto::JobSpec& spec, const JobPlan& plan) {
  if (spec.steps() > 0) return spec.steps();
  if (spec.epochs() < plan.whole_epoch) return plan.first_step;
  return plan.whole_step +
         (spec.epochs() - plan.whole_epoch) * plan.steps_per_epoch;
}

int64_t ScheduleSteps(const proto::JobSpec& spec, const JobPlan& plan) {
  if (spec.steps() == 0) return spec.epochs() * plan.steps_per_epoch;
  const int64_t last = std::max(plan.total_steps, plan.first_step);
  return static_cast<int64_t>(std::ceil(plan.ScheduleStep(last)));
}

}  // namespace

double JobPlan::RateAt(int64_t step) const {
  return LearningRate(optimizer.schedule(), optimizer.lr(), ScheduleStep(step));
}

EpochSteps JobPlan::EpochOf(int64_t step) const {
  if (step < whole_step) {
    return {whole_epoch - 1, first_sample, first_step, whole_step};
  }
  const int64_t later = (step - whole_step) / steps_per_epoch;
  const int64_t begin = whole_step + later * steps_per_epoch;
  return {whole_epoch + later, 0, begin, begin + steps_per_epoch};
}

proto::SampleCursor JobPlan::CursorAt(int64_t step) const {
  const EpochSteps steps = EpochOf(step);
  proto::SampleCursor cursor;
  cursor.set_epoch(steps.epoch);
  cursor.set_samples(steps.first_sample + (step - steps.begin) * global_batch);
  return cursor;
}

double JobPlan::ScheduleStep(int64_t step) const {
  const EpochSteps steps = EpochOf(step);
  return static_cast<double>(steps.epoch * steps_per_epoch + step -
                             steps.begin) +
         static_cast<double>(steps.first_sample) /
             static_cast<double>(global_batch);
}

int64_t FirstExchange(const proto::JobSpec& spec) {
  return spec.local_steps() > 1 ? 0 : spec.first_step();
}

bool ReturnsMean(const proto::JobSpec& spec) {
  return spec.local_steps() > 1 || spec.mean_only();
}

int NumRates(const proto::JobSpec& spec) {
  return spec.rates_from_workers() ? std::max(spec.groups_size(), 1) : 0;
}

JobPlan PlanOf(const proto::JobSpec& spec, int num_workers) {
  JobPlan plan;
  const int workers = std::max(num_workers, 1);
  const int64_t batch_size = std::max<int64_t>(spec.batch_size(), 1);
  const int64_t size = spec.dataset_size();
  plan.global_batch = batch_size * workers;
  plan.steps_per_epoch =
      std::max<int64_t>(1, StepsFor(size, workers, batch_size));
  const proto::SampleCursor cursor = FirstCursor(spec, plan);
  PlaceFirstStep(cursor, spec.first_step(),
                 StepsFor(size - cursor.samples(), workers, batch_size), plan);
  plan.total_steps = TotalSteps(spec, plan);
  plan.optimizer = spec.optimizer();
  if (spec.scale_lr()) {
    plan.optimizer.set_lr(plan.optimizer.lr() *
                          (num_workers - spec.backup_workers()));
  }
  proto::LrSchedule& schedule = *plan.optimizer.mutable_schedule();
  const auto steps = [&](double epochs) {
    return std::llround(epochs * static_cast<double>(plan.steps_per_epoch));
  };
  schedule.set_warmup_steps(steps(spec.warmup_epochs()));
  schedule.set_total_steps(ScheduleSteps(spec, plan));
  if (spec.decay_every_epochs() > 0) {
    schedule.set_decay_every_steps(
        std::max<int64_t>(1, steps(spec.decay_every_epochs())));
  }
  return plan;
}

}  // namespace psring
