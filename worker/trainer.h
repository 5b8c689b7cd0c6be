// The training loop. It knows the seam, not the topology.
#ifndef PSRING_WORKER_TRAINER_H_
#define PSRING_WORKER_TRAINER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "common/cluster/stop_agreement.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/flat_model.h"
#include "common/net/cancellation.h"
#include "common/optim/job_plan.h"
#include "common/slowdown.h"
#include "common/trace/metrics_file.h"
#include "common/trace/timeline.h"
#include "gpu/device.h"
#include "worker/batch_loader.h"
#include "worker/checkpoint.h"
#include "worker/data/dataset.h"
#include "worker/evaluator.h"
#include "worker/flat_parameters.h"
#include "worker/late_loss.h"
#include "worker/models/classifier.h"
#include "worker/step_clock.h"
#include "worker/step_gradient.h"
#include "worker/torch/precision.h"
#include "worker/training_checkpoints.h"
#include "worker/training_report.h"

namespace psring {

struct TrainerOptions {
  JobPlan plan;
  Progress progress;  // of a checkpoint; its step is where training begins
  uint64_t seed = 0;
  int64_t batch_size = 64;
  double clip_norm = 0;  // of this worker's gradient; 0: no clipping
  Precision precision = Precision::kFp32;
  bool scale_loss = false;    // as fp16 needs it
  LoaderOptions loader = {};  // of the training samples
  Slowdown slowdown;          // none
  absl::Duration step_timeout = absl::Seconds(60);
  // Where no step holds workers together: they wait for each other before they
  // evaluate or save, as long as that takes. The coordinator ends the job of
  // one that dies or hangs (--progress-timeout).
  bool catches_up = false;
  bool runs_ahead = false;  // any number of steps
  CheckpointOptions checkpoints;
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
  // The GPU that the model computes on, in this stream; null: the CPU.
  Device* device = nullptr;
  Stream compute = kComputeStream;
  Track* gpu_track = nullptr;     // of what the GPU does; null: no timeline
  StopAgreement* stop = nullptr;  // null: nobody ends the training early
};

// Lives on one thread, the exchange's.
class Trainer {
 public:
  Trainer(const TrainerParts& parts, const TrainerOptions& options);

  // Trains to the end, evaluating after every epoch and after the last step, or
  // to the step after which the workers have agreed to stop. A checkpoint of
  // the last step is written before it is evaluated. Where no step is left, it
  // evaluates alone.
  // The exchange has been joined. Errors: the exchange's, the last checkpoint
  // if it cannot be written, a cancelled process, a loss that is no number,
  // libtorch's.
  absl::Status Run();

  int64_t step() const { return step_; }
  // Since the first step began; evaluation and checkpoints left out, but not
  // how long it waits for the steps of others that these need.
  absl::Duration training_time() const { return training_time_; }
  const StepTimes& step_times() const { return times_; }
  // This worker's, of which backup workers may have left out some.
  int64_t num_steps() const { return num_steps_; }
  int64_t num_images() const { return num_images_; }
  // Whether Run has ended early, as the workers have agreed to stop.
  bool stopped() const { return stopped_; }

 private:
  // This worker's share of an epoch, so far.
  struct EpochStats {
    double ImagesPerSecond() const;

    double loss_sum = 0;  // over steps
    int64_t num_steps = 0;
    int64_t num_images = 0;
    absl::Duration time;
  };

  // Throws what libtorch throws, as all below that compute.
  absl::Status Train();
  // Waits for as long as an injected fault makes this step longer; how long.
  absl::StatusOr<absl::Duration> SlowDown();
  absl::Status FinishStep();
  // On a GPU it becomes known a step later.
  absl::Status TakeLoss(const at::Tensor& loss);
  absl::Status NoteLoss(const std::optional<KnownLoss>& known);
  // The GPU's times of steps that it has done, from which others may see who
  // was late; on the CPU nothing, as below.
  absl::Status TakeTimes();
  // Waits until the GPU has done all steps.
  absl::Status AwaitGpu();
  // The last step of several, which a GPU still computes: its time and loss.
  // Then all workers have made as many, unless one stops early (`stops`, of
  // this one): then all do. Whether they do; end_ says where.
  absl::StatusOr<bool> EndSteps(bool stops);
  absl::StatusOr<bool> CatchUp(bool stops);
  // `next`: of the step after; without indices: not known.
  absl::Status Step(const Samples& now, const Samples& next);
  // `before`: the step that has been made. Whether all stop early.
  absl::StatusOr<bool> AfterStep(int64_t before);
  absl::Status EndEpoch();
  // Whether somebody has wished that this is the last step.
  absl::StatusOr<bool> StopsHere();
  // A checkpoint of where that leaves all.
  absl::Status SaveEarly();
  TrainingReport::State State() const;
  Time Deadline() const;
  int64_t epoch() const;  // from 1: the last step's
  bool finished() const { return step_ >= options_.plan.total_steps; }

  // Fixed after construction.
  const TrainerParts parts_;
  const TrainerOptions options_;
  Activity& activity_;  // this thread's
  const int rank_;
  const int num_workers_;

  StepGradient gradient_;
  LateLoss losses_;
  Evaluator evaluator_;
  TrainingCheckpoints checkpoints_;
  TrainingReport report_;
  std::unique_ptr<StepClock> clock_;  // null: on the CPU
  int64_t step_;
  absl::Duration training_time_;
  int64_t num_steps_ = 0;
  int64_t num_images_ = 0;  // in all steps
  // Of the last step (that is known), without what slows it.
  absl::Duration compute_time_;
  StepTimes times_;
  double last_loss_ = 0;
  bool evaluating_ = false;
  EpochStats epoch_stats_;  // of the epoch under way
  int64_t num_epochs_ = 0;
  bool stopped_ = false;
  // After EndSteps: the step that all are at or, where they stop early and are
  // at different ones, their mean, and the updates that all have made.
  struct End {
    int64_t step = 0;
    int64_t updates = 0;
  } end_;
};

}  // namespace psring

#endif  // PSRING_WORKER_TRAINER_H_
