// The training loop. It knows the seam, not the topology.
#ifndef PSRING_WORKER_TRAINER_H_
#define PSRING_WORKER_TRAINER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/flat_model.h"
#include "common/net/cancellation.h"
#include "common/optim/job_plan.h"
#include "common/trace/metrics_file.h"
#include "common/trace/timeline.h"
#include "worker/checkpoint.h"
#include "worker/data/dataset.h"
#include "worker/flat_parameters.h"
#include "worker/models/classifier.h"
#include "worker/slowdown.h"
#include "worker/time_distribution.h"

namespace psring {

struct TrainerOptions {
  JobPlan plan;
  Progress progress;  // of a checkpoint; its step is where training begins
  uint64_t seed = 0;
  int64_t batch_size = 64;
  double clip_norm = 0;  // of this worker's gradient; 0: no clipping
  Slowdown slowdown;     // none
  absl::Duration step_timeout = absl::Seconds(60);
  std::string checkpoint_dir;    // absolute; empty: no checkpoints
  int64_t checkpoint_every = 0;  // steps; 0: only at the end
  int64_t checkpoint_keep = 3;   // the newest so many; 0: all
  // Where workers may be at different steps: all stop after so many, and wait
  // until a checkpoint is written; 0: a step needs every worker.
  int64_t stop_every = 0;
};

// What the trainer works with; all of it outlives the trainer.
struct TrainerParts {
  Classifier& model;
  const DatasetPair& data;
  FlatModel& flat;
  FlatMemory memory;  // what the model computes on: flat's, or a GPU's
  GradientExchange& exchange;
  Member& member;
  MetricsFile& metrics;
  const Cancellation& cancellation;
  Track* track = nullptr;  // of the trainer's thread; null: no timeline
};

// Where the time of all steps went.
struct StepTimes {
  absl::Duration compute;   // data, forward, backward; on a GPU, until it ends
  absl::Duration exposed;   // in Finish: communication, and others' lateness
  absl::Duration injected;  // the wait of an injected fault
  TimeDistribution busy;  // of steps' computing and injected wait; not on GPUs
};

// Lives on one thread, the exchange's.
class Trainer {
 public:
  Trainer(const TrainerParts& parts, const TrainerOptions& options);

  // Trains to the end, evaluating after every epoch and after the last step.
  // The exchange has been joined. Errors: the exchange's, the last checkpoint
  // if it cannot be written, a cancelled process, a loss that is no number.
  absl::Status Run();

  int64_t step() const { return step_; }
  // Since the first step began; evaluation and checkpoints left out.
  absl::Duration training_time() const { return training_time_; }
  const StepTimes& step_times() const { return times_; }

 private:
  // This worker's share of an epoch, so far.
  struct EpochStats {
    double ImagesPerSecond() const;

    double loss_sum = 0;  // over steps
    int64_t num_steps = 0;
    int64_t num_images = 0;
    absl::Duration time;
  };

  struct Evaluation {
    double loss = 0;
    double accuracy = 0;
  };

  void OnBucketReady(int bucket);
  // After backward: clips the gradient by its global norm and submits it.
  absl::Status SubmitClipped();
  // Clips the gradients in place; their norm before.
  double Clip();
  // Waits for as long as an injected fault makes this step longer.
  absl::Status SlowDown();
  // Forward and backward, on whose way buckets are submitted; the loss.
  absl::StatusOr<at::Tensor> Compute(const std::vector<int64_t>& batch);
  absl::Status FinishStep();
  // Waits for a GPU.
  absl::Status ReadLoss(const at::Tensor& loss);
  absl::Status Step(const std::vector<int64_t>& batch);
  // `before`: the step that has been made.
  absl::Status AfterStep(int64_t before);
  absl::Status EndEpoch();
  absl::StatusOr<Evaluation> Evaluate();
  // Over all workers, in place.
  absl::Status Sum(std::vector<double>& values);
  // All workers take rank 0's running statistics.
  absl::Status BroadcastBuffers();
  // Where it cannot be written, training continues, unless it is over.
  absl::Status Checkpoint();
  absl::Status CheckpointOfOneMoment();
  absl::Status WriteCheckpointOfStep();
  void SeedDropout();
  Time StepDeadline() const;
  int64_t epoch() const;  // from 1: the last step's
  bool finished() const { return step_ >= options_.plan.total_steps; }

  // Fixed after construction.
  const TrainerParts parts_;
  const TrainerOptions options_;
  const int rank_;
  const int num_workers_;

  FlatParameters flat_;
  absl::Status submit_status_;  // of the hooks of this backward pass
  std::vector<int> unclipped_;  // buckets of this step, with clip_norm
  int64_t step_;
  absl::Duration training_time_;
  absl::Duration compute_time_;  // of the last step, without what slows it
  StepTimes times_;
  Time next_report_ = Time::InfinitePast();
  double last_loss_ = 0;
  EpochStats epoch_stats_;  // of the epoch under way
  int64_t evaluations_ = 0;
  int64_t num_sums_ = 0;
  int64_t num_stops_ = 0;
};

}  // namespace psring

#endif  // PSRING_WORKER_TRAINER_H_
