// A job spec in steps: what follows once the number of workers is known. Pure,
// so that servers and workers agree.
#ifndef PSRING_COMMON_OPTIM_JOB_PLAN_H_
#define PSRING_COMMON_OPTIM_JOB_PLAN_H_

#include <cstdint>

#include "protos/cluster.pb.h"

namespace psring {

struct JobPlan {
  // The learning rate of `step` (from 0).
  double RateAt(int64_t step) const;

  int64_t steps_per_epoch = 1;
  int64_t total_steps = 0;
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

// The number of learning rates that every push brings: one a group of tensors,
// or none where the job's plan knows them.
int NumRates(const proto::JobSpec& spec);

// An epoch gives every worker ceil(dataset_size / num_workers) samples, in
// batches of batch_size of which the last may be smaller.
JobPlan PlanOf(const proto::JobSpec& spec, int num_workers);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_JOB_PLAN_H_
