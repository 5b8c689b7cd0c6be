// What a training tells of itself: lines of metrics, and figures for those who
// look at the job.
#ifndef PSRING_WORKER_TRAINING_REPORT_H_
#define PSRING_WORKER_TRAINING_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "common/exchange/gradient_exchange.h"
#include "common/optim/job_plan.h"
#include "common/trace/metrics_file.h"
#include "worker/evaluator.h"
#include "worker/time_distribution.h"

namespace psring {

// Where the time of all steps went.
struct StepTimes {
  absl::Duration compute;  // data, forward, backward; on a GPU, what it took
  // After it until the next parameters: communication, and others' lateness.
  absl::Duration exposed;
  absl::Duration catch_up;  // of it, before evaluations: all make their steps
  absl::Duration injected;  // the wait of an injected fault
  TimeDistribution busy;    // of steps' computing and injected wait
};

// Lives on the trainer's thread.
class TrainingReport {
 public:
  // All of it outlives this.
  struct Parts {
    Member& member;
    MetricsFile& metrics;
    GradientExchange& exchange;
  };

  // How the training stands after a step.
  struct State {
    int64_t step = 0;
    int64_t num_steps = 0;  // made; a late backup worker leaves some out
    absl::Duration time;    // since the first step began, without evaluations
    double loss = 0;        // the last that is known
    double images_per_second = 0;  // of all workers, in this epoch
    int64_t num_images = 0;        // of this worker
  };

  struct Epoch {
    int64_t number = 0;     // from 1
    double train_loss = 0;  // NaN: no step was made
    Evaluation evaluation;
    double images_per_second = 0;  // of all workers
  };

  TrainingReport(const Parts& parts, const JobPlan& plan);

  // After each step; tells of some, and of the last.
  void TellStep(const State& state, const StepTimes& times);
  // Of rank 0, after each epoch.
  void TellEpoch(const State& state, const Epoch& epoch);

 private:
  // What the last line about a step has told of.
  struct Told {
    int64_t num_steps = 0;
    absl::Duration compute = {};
    absl::Duration exposed = {};
  };

  void WriteStep(const State& state, const StepTimes& times);
  void TellFigures(const State& state, const StepTimes& times);

  const Parts parts_;
  const JobPlan plan_;
  Told told_;
  Time next_ = Time::InfinitePast();
};

}  // namespace psring

#endif  // PSRING_WORKER_TRAINING_REPORT_H_
