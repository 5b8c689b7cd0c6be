#include "common/optim/job_plan.h"

#include <algorithm>
#include <cmath>

#include "common/optim/lr_schedule.h"

namespace psring {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

double JobPlan::RateAt(int64_t step) const {
  return LearningRate(optimizer.schedule(), optimizer.lr(), step);
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
  const int64_t samples =
      CeilDivide(spec.dataset_size(), std::max(num_workers, 1));
  plan.steps_per_epoch = std::max<int64_t>(
      1, CeilDivide(samples, std::max<int64_t>(spec.batch_size(), 1)));
  plan.total_steps =
      spec.steps() > 0 ? spec.steps() : spec.epochs() * plan.steps_per_epoch;
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
  schedule.set_total_steps(plan.total_steps);
  if (spec.decay_every_epochs() > 0) {
    schedule.set_decay_every_steps(
        std::max<int64_t>(1, steps(spec.decay_every_epochs())));
  }
  return plan;
}

}  // namespace psring
