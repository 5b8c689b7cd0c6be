// The learning rate as a pure function of a place in the schedule, so that
// servers and workers compute the same one.
#ifndef PSRING_COMMON_OPTIM_LR_SCHEDULE_H_
#define PSRING_COMMON_OPTIM_LR_SCHEDULE_H_

#include "protos/cluster.pb.h"

namespace psring {

// The rate of `step` (from 0), which is a part of a step where a run was
// resumed with steps of another size (JobPlan::ScheduleStep). During the first
// warmup_steps it climbs linearly: base * (step+1)/warmup_steps (Goyal et al.
// 2017). Then
//   constant  base
//   step      base * decay_factor^floor(step / decay_every_steps)
//   cosine    base * (1 + cos(pi * t)) / 2, t from 0 at the end of the warm-up
//             to 1 at total_steps (Loshchilov & Hutter 2017); 0 afterwards.
// What it divides by is positive: CheckPlan (job_plan.h) sees to that.
double LearningRate(const proto::LrSchedule& schedule, double base,
                    double step);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_LR_SCHEDULE_H_
