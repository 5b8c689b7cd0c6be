// A job spec in steps: what follows once the number of workers is known. Pure,
// so that servers and workers agree.
#ifndef PSRING_COMMON_OPTIM_JOB_PLAN_H_
#define PSRING_COMMON_OPTIM_JOB_PLAN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "protos/cluster.pb.h"

namespace psring {

// The steps [begin, end) of an epoch, or of what was left of it when the run
// was resumed. Rank r of N takes the samples first_sample + r + N*i of its
// order.
struct EpochSteps {
  int64_t epoch = 0;
  int64_t first_sample = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// The number of a step names checkpoints and never starts anew; epochs and the
// schedule follow samples, so a run may be resumed with another number of
// workers or another batch size. Steps here are the run's first or later ones.
struct JobPlan {
  // The learning rate of `step` (from 0).
  double RateAt(int64_t step) const;
  // The epoch in which `step` is made.
  EpochSteps EpochOf(int64_t step) const;
  // What is consumed when `step` begins.
  proto::SampleCursor CursorAt(int64_t step) const;
  // How many updates each parameter has had when `step` begins; under ssp and
  // async, once all workers' gradients of the steps before are applied.
  int64_t UpdatesAt(int64_t step) const;
  // The number that `step` would have if all steps before had been of this
  // run's size: its own, unless a run is resumed with another.
  double ScheduleStep(int64_t step) const;

  int64_t steps_per_epoch = 1;
  int64_t total_steps = 0;
  int64_t global_batch = 1;    // samples that all workers take in a step
  int64_t smallest_batch = 1;  // samples that a worker takes in some step
  // Where the run begins: with the rest of epoch whole_epoch - 1, from sample
  // first_sample on, until whole_step; or at once with epoch whole_epoch.
  int64_t first_step = 0;
  int64_t first_sample = 0;
  int64_t whole_step = 0;
  int64_t whole_epoch = 0;
  int64_t first_updates = 0;     // before first_step
  int64_t updates_per_step = 1;  // one, or one a worker
  // With the learning rate that counts, and its schedule in steps.
  proto::OptimizerSettings optimizer;
};

// The number of an exchange's first step: the job's; with local steps, which
// exchange parameters now and then, these are counted from 0 on.
int64_t FirstExchange(const proto::JobSpec& spec);

// Whether the exchange returns the mean of what the workers bring, in place of
// new parameters that follow from it: local steps, and workers that apply an
// optimizer of their own.
bool ReturnsMean(const proto::JobSpec& spec);

// An epoch gives every worker ceil(dataset_size / num_workers) samples, in
// batches of batch_size of which the last may be smaller (and is left out with
// drop_last); the rest of an epoch its share of the rest. `steps` counts from
// the job's very first step, and with it the schedule ends with the last one.
// CheckPlan has found the spec right.
JobPlan PlanOf(const proto::JobSpec& spec, int num_workers);

// Whether a plan can be made of it, for any number of workers: all that is
// counted stays within its bounds. INVALID_ARGUMENT names the field.
absl::Status CheckPlan(const proto::JobSpec& spec);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_JOB_PLAN_H_
