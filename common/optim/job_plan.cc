#include "common/optim/job_plan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/optim/lr_schedule.h"
#include "common/optim/sync_policy.h"

namespace psring {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How num_workers take samples together.
struct Batches {
  // The steps in which they take so many.
  int64_t StepsFor(int64_t samples) const {
    const int64_t each = CeilDivide(samples, num_workers);
    return drop_last ? each / batch_size : CeilDivide(each, batch_size);
  }
  // Those of a worker in the last of these steps.
  int64_t LastOf(int64_t samples) const {
    const int64_t each = CeilDivide(samples, num_workers);
    return drop_last || each == 0 ? batch_size : (each - 1) % batch_size + 1;
  }

  int num_workers;
  int64_t batch_size;
  bool drop_last;
};

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

// Products of these stay below 2^63: of the epochs and an epoch's steps, of the
// steps and the workers, of a step's samples and the workers.
constexpr int64_t kMaxSamples = int64_t{1} << 32;
constexpr int64_t kMaxBatch = int64_t{1} << 30;
constexpr int64_t kMaxEpochs = int64_t{1} << 30;
constexpr int64_t kMaxSteps = int64_t{1} << 48;
constexpr int64_t kMaxUpdates = int64_t{1} << 60;

// A number is compared so that NaN is outside.
template <typename T>
absl::Status CheckField(const char* name, T value, T least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the job's ", name, " is ",
                                                 value, ": it must be from ",
                                                 least, " to ", most));
}

absl::Status CheckDecay(const proto::JobSpec& spec) {
  constexpr double kMost = kMaxEpochs;
  absl::Status status =
      CheckField("warmup_epochs", spec.warmup_epochs(), 0.0, kMost);
  status.Update(
      CheckField("decay_every_epochs", spec.decay_every_epochs(), 0.0, kMost));
  const proto::LrSchedule& schedule = spec.optimizer().schedule();
  if (schedule.kind() != "step") return status;
  status.Update(
      CheckField("decay_factor", schedule.decay_factor(), 0.0, kMost));
  if (spec.decay_every_epochs() > 0) return status;
  status.Update(CheckField("decay_every_steps", schedule.decay_every_steps(),
                           int64_t{1}, kMaxSteps));
  return status;
}

absl::Status CheckCursor(const proto::JobSpec& spec) {
  const proto::SampleCursor& cursor = spec.first_cursor();
  absl::Status status =
      CheckField("first_cursor.epoch", cursor.epoch(), int64_t{0}, kMaxEpochs);
  status.Update(CheckField("first_cursor.samples", cursor.samples(), int64_t{0},
                           std::max<int64_t>(spec.dataset_size() - 1, 0)));
  return status;
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

int64_t JobPlan::UpdatesAt(int64_t step) const {
  return first_updates + (step - first_step) * updates_per_step;
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

JobPlan PlanOf(const proto::JobSpec& spec, int num_workers) {
  JobPlan plan;
  const int workers = std::max(num_workers, 1);
  const Batches batches = {workers, std::max<int64_t>(spec.batch_size(), 1),
                           spec.drop_last()};
  const int64_t size = spec.dataset_size();
  plan.global_batch = batches.batch_size * workers;
  plan.steps_per_epoch = std::max<int64_t>(1, batches.StepsFor(size));
  const proto::SampleCursor cursor = FirstCursor(spec, plan);
  const int64_t rest = size - cursor.samples();
  PlaceFirstStep(cursor, spec.first_step(), batches.StepsFor(rest), plan);
  plan.total_steps = TotalSteps(spec, plan);
  plan.smallest_batch = batches.batch_size;
  if (plan.first_step < plan.whole_step &&
      plan.whole_step <= plan.total_steps) {
    plan.smallest_batch = batches.LastOf(rest);
  }
  if (plan.whole_step + plan.steps_per_epoch <= plan.total_steps) {
    plan.smallest_batch = std::min(plan.smallest_batch, batches.LastOf(size));
  }
  plan.updates_per_step = PolicyOf(spec).barrier ? 1 : workers;
  plan.first_updates = spec.has_first_updates()
                           ? spec.first_updates()
                           : spec.first_step() * plan.updates_per_step;
  plan.optimizer = spec.optimizer();
  // A local step is an update by the worker's own gradient.
  if (spec.scale_lr() && PolicyOf(spec).barrier && spec.local_steps() <= 1) {
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

absl::Status CheckPlan(const proto::JobSpec& spec) {
  const struct {
    const char* name;
    int64_t value;
    int64_t most;
  } fields[] = {
      {"dataset_size", spec.dataset_size(), kMaxSamples},
      {"batch_size", spec.batch_size(), kMaxBatch},
      {"epochs", spec.epochs(), kMaxEpochs},
      {"steps", spec.steps(), kMaxSteps},
      {"first_step", spec.first_step(), kMaxSteps},
      {"first_updates", spec.first_updates(), kMaxUpdates},
      {"staleness", spec.staleness(), kMaxSteps},
      {"local_steps", spec.local_steps(), kMaxSteps},
  };
  absl::Status status;
  for (const auto& field : fields) {
    status.Update(CheckField(field.name, field.value, int64_t{0}, field.most));
  }
  status.Update(CheckCursor(spec));
  status.Update(CheckDecay(spec));
  return status;
}

}  // namespace psring
