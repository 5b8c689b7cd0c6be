#include "worker/trainer.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/worker_sum.h"
#include "common/optim/gradient_clip.h"
#include "common/optim/optimizer.h"
#include "common/split_mix.h"
#include "spdlog/spdlog.h"
#include "worker/batch.h"
#include "worker/buffers.h"
#include "worker/checkpoint_directory.h"
#include "worker/sampler.h"
#include "worker/torch/tensors.h"
#include "worker/torch/torch_error.h"

namespace psring {
namespace {

constexpr int64_t kEvaluationBatch = 256;
constexpr absl::Duration kReportInterval = absl::Milliseconds(200);

// Unrelated seeds from related numbers.
uint64_t Mix(uint64_t x) { return SplitMix64(x).Next(); }

// Whether a checkpoint has failed because of the job, and not of the disk.
bool EndsTraining(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsUnavailable(status) || absl::IsAborted(status);
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts, const TrainerOptions& options)
    : parts_(parts),
      options_(options),
      rank_(parts.member.job().rank()),
      num_workers_(parts.member.job().workers_size()),
      flat_(parts.model, parts.flat.layout, parts.memory,
            [this](int bucket) { OnBucketReady(bucket); }),
      step_(options.progress.step) {}

Time Trainer::StepDeadline() const {
  // Whoever waits for a culprit names it first; this one is the backstop.
  return Now() + 2 * options_.step_timeout;
}

int64_t Trainer::epoch() const {
  return options_.plan.EpochOf(step_ - 1).epoch + 1;
}

double Trainer::EpochStats::ImagesPerSecond() const {
  return static_cast<double>(num_images) /
         std::max(absl::ToDoubleSeconds(time), 1e-9);
}

// Dropout's randomness is a function of (seed, rank, step): the same in every
// topology, and the same for a run that stopped and resumed.
void Trainer::SeedDropout() {
  SeedLibtorch(Mix(Mix(options_.seed + 1) ^ Mix(static_cast<uint64_t>(step_)) ^
                   (static_cast<uint64_t>(rank_) << 48)));
}

absl::Status Trainer::Run() {
  while (!finished()) {
    const EpochSteps steps = options_.plan.EpochOf(step_);
    const std::vector<int64_t> indices =
        Indices({.dataset_size = parts_.data.train.size(),
                 .num_replicas = num_workers_,
                 .rank = rank_,
                 .seed = options_.seed,
                 .consumed = steps.first_sample},
                steps.epoch);
    const auto size = static_cast<int64_t>(indices.size());
    while (step_ < steps.end && !finished()) {
      const int64_t before = step_;
      const int64_t begin =
          std::min((step_ - steps.begin) * options_.batch_size, size);
      const int64_t end = std::min(begin + options_.batch_size, size);
      if (absl::Status s =
              Step({indices.begin() + begin, indices.begin() + end});
          !s.ok()) {
        return s;
      }
      if (absl::Status s = AfterStep(before); !s.ok()) return s;
    }
    if (absl::Status s = EndEpoch(); !s.ok()) return s;
  }
  return options_.checkpoint_dir.empty() ? absl::OkStatus() : Checkpoint();
}

void Trainer::OnBucketReady(int bucket) {
  if (options_.clip_norm > 0) return unclipped_.push_back(bucket);
  TimelineSpan span(parts_.track, "submit", {.step = step_, .bucket = bucket});
  submit_status_.Update(parts_.exchange.Submit(bucket));
}

double Trainer::Clip() {
  const FlatMemory& memory = parts_.memory;
  if (memory.device.is_cpu()) {
    return ClipToNorm(options_.clip_norm, parts_.flat.gradients.span());
  }
  c10::NoGradGuard no_grad;
  const at::Tensor gradients =
      TensorAt(memory.gradients, {parts_.flat.gradients.size()}, memory.device);
  const auto norm = gradients.norm().item<double>();
  const double factor = options_.clip_norm / (norm + 1e-6);
  if (factor < 1) gradients.mul_(factor);
  return norm;
}

absl::Status Trainer::SlowDown() {
  const double factor = options_.slowdown.FactorOf(rank_, step_);
  const absl::Duration wait = (factor - 1) * compute_time_;
  if (wait <= absl::ZeroDuration()) return absl::OkStatus();
  TimelineSpan span(parts_.track, "slow", {.step = step_});
  times_.injected += wait;
  return parts_.cancellation.SleepUntil(Now() + wait);
}

absl::Status Trainer::SubmitClipped() {
  TimelineSpan span(parts_.track, "clip", {.step = step_});
  const double norm = Clip();
  if (!std::isfinite(norm)) {
    return absl::OutOfRangeError(absl::StrCat(
        "the norm of step ", step_, "'s gradient is ", norm,
        ": training has diverged. A smaller --lr or --warmup-epochs may help"));
  }
  for (int bucket : unclipped_) {
    if (absl::Status s = parts_.exchange.Submit(bucket); !s.ok()) return s;
  }
  unclipped_.clear();
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> Trainer::Compute(const std::vector<int64_t>& batch) {
  const SpanArgs args = {.step = step_};
  SeedDropout();
  parts_.model.set_training(true);
  try {
    TimelineSpan data(parts_.track, "data", args);
    const Batch samples =
        BatchOf(parts_.data.train, batch, parts_.memory.device);
    data.End();
    TimelineSpan forward(parts_.track, "forward", args);
    at::Tensor loss =
        MeanNllLoss(parts_.model.Forward(samples.images), samples.labels);
    forward.End();
    TimelineSpan backward(parts_.track, "backward", args);
    loss.backward();
    flat_.FinishBackward();
    return loss;
  } catch (const std::exception& error) {
    const absl::Status status = TorchError(error);
    return absl::Status(status.code(),
                        absl::StrCat("libtorch: ", status.message()));
  }
}

absl::Status Trainer::FinishStep() {
  TimelineSpan span(parts_.track, "wait", {.step = step_});
  const Time begin = Now();
  absl::Status status = parts_.exchange.Finish(StepDeadline());
  times_.exposed += Now() - begin;
  return status;
}

absl::Status Trainer::ReadLoss(const at::Tensor& loss) {
  TimelineSpan span(parts_.track, "device", {.step = step_});
  if (parts_.memory.device.is_cpu()) span.Drop();
  const Time begin = Now();
  last_loss_ = loss.item<double>();
  times_.compute += Now() - begin;
  if (std::isfinite(last_loss_)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "the loss of step ", step_, " is ", last_loss_,
      ": training has diverged. A smaller --lr or --warmup-epochs may help"));
}

absl::Status Trainer::Step(const std::vector<int64_t>& batch) {
  if (absl::Status s = parts_.cancellation.status(); !s.ok()) return s;
  TimelineSpan span(parts_.track, "step", {.step = step_});
  const Time start = Now();
  if (absl::Status s = SlowDown(); !s.ok()) return s;
  const Time begin = Now();
  auto loss = Compute(batch);
  if (!loss.ok()) return loss.status();
  compute_time_ = Now() - begin;
  times_.compute += compute_time_;
  if (parts_.memory.device.is_cpu()) times_.busy.Add(Now() - start);
  if (!submit_status_.ok()) return submit_status_;
  if (options_.clip_norm > 0) {
    if (absl::Status s = SubmitClipped(); !s.ok()) return s;
  }
  if (absl::Status s = FinishStep(); !s.ok()) return s;
  if (absl::Status s = ReadLoss(*loss); !s.ok()) return s;
  step_ = parts_.exchange.step();
  parts_.member.ReportStep(step_);
  const absl::Duration took = Now() - start;
  training_time_ += took;
  epoch_stats_.loss_sum += last_loss_;
  ++epoch_stats_.num_steps;
  epoch_stats_.num_images += static_cast<int64_t>(batch.size());
  epoch_stats_.time += took;
  return absl::OkStatus();
}

absl::Status Trainer::AfterStep(int64_t before) {
  const Time now = Now();
  if (now >= next_report_ || finished()) {
    next_report_ = now + kReportInterval;
    parts_.metrics.Write(
        {{"event", "step"},
         {"step", step_},
         {"seconds", absl::ToDoubleSeconds(training_time_)},
         {"loss", last_loss_},
         {"images_per_second", epoch_stats_.ImagesPerSecond() * num_workers_}});
  }
  const auto due = [&](int64_t every) {
    return every > 0 && !finished() && step_ / every > before / every;
  };
  if (options_.stop_every > 0) {
    return due(options_.stop_every) ? CheckpointOfOneMoment()
                                    : absl::OkStatus();
  }
  return due(options_.checkpoint_every) && !options_.checkpoint_dir.empty()
             ? Checkpoint()
             : absl::OkStatus();
}

// Every worker has pushed as many steps, and no shard changes before the
// checkpoint is there.
absl::Status Trainer::CheckpointOfOneMoment() {
  if (absl::Status s = parts_.exchange.Synchronise(StepDeadline()); !s.ok()) {
    return s;
  }
  if (absl::Status s = Checkpoint(); !s.ok()) return s;
  return parts_.member
      .Gather(absl::StrCat("checkpoint ", num_stops_++), "", StepDeadline())
      .status();
}

absl::Status Trainer::EndEpoch() {
  auto evaluation = Evaluate();
  if (!evaluation.ok()) return evaluation.status();
  const EpochStats stats = std::exchange(epoch_stats_, EpochStats());
  std::vector<double> sums = {stats.loss_sum,
                              static_cast<double>(stats.num_steps),
                              stats.ImagesPerSecond()};
  if (absl::Status s = Sum(sums); !s.ok()) return s;
  const double train_loss = sums[0] / std::max(sums[1], 1.0);
  const double rate = sums[2];
  if (rank_ != 0) return absl::OkStatus();
  parts_.metrics.Write({{"event", "epoch"},
                        {"epoch", epoch()},
                        {"step", step_},
                        {"seconds", absl::ToDoubleSeconds(training_time_)},
                        {"train_loss", train_loss},
                        {"test_loss", evaluation->loss},
                        {"test_accuracy", evaluation->accuracy},
                        {"images_per_second", rate}});
  spdlog::info(
      "epoch {} step {}/{}: train loss {:.4f}, test loss {:.4f}, test accuracy "
      "{:.4f}, {:.0f} images/s",
      epoch(), step_, options_.plan.total_steps, train_loss, evaluation->loss,
      evaluation->accuracy, rate);
  return absl::OkStatus();
}

absl::StatusOr<Trainer::Evaluation> Trainer::Evaluate() {
  TimelineSpan span(parts_.track, "evaluate", {.step = step_});
  if (absl::Status s = parts_.exchange.Synchronise(StepDeadline()); !s.ok()) {
    return s;
  }
  if (absl::Status s = BroadcastBuffers(); !s.ok()) return s;
  const Dataset& test = parts_.data.test;
  const std::vector<int64_t> mine =
      EvaluationIndices(test.size(), num_workers_, rank_);
  c10::NoGradGuard no_grad;
  parts_.model.set_training(false);
  std::vector<double> sums(3, 0.0);  // loss, correct, samples
  for (size_t begin = 0; begin < mine.size(); begin += kEvaluationBatch) {
    if (absl::Status s = parts_.cancellation.status(); !s.ok()) return s;
    const size_t end = std::min<size_t>(begin + kEvaluationBatch, mine.size());
    const absl::Span<const int64_t> batch(mine.data() + begin, end - begin);
    const Batch samples = BatchOf(test, batch, parts_.memory.device);
    const at::Tensor output = parts_.model.Forward(samples.images);
    sums[0] += SumNllLoss(output, samples.labels).item<double>();
    sums[1] += output.argmax(1).eq(samples.labels).sum().item<double>();
    sums[2] += static_cast<double>(end - begin);
  }
  if (absl::Status s = Sum(sums); !s.ok()) return s;
  const double samples = std::max(sums[2], 1.0);
  return Evaluation{sums[0] / samples, sums[1] / samples};
}

absl::Status Trainer::Sum(std::vector<double>& values) {
  return SumOverWorkers(parts_.member, absl::StrCat("sum ", num_sums_++),
                        absl::MakeSpan(values), StepDeadline());
}

absl::Status Trainer::BroadcastBuffers() {
  std::vector<ExtraTensor> buffers = BuffersOf(parts_.model);
  if (buffers.empty()) return absl::OkStatus();
  std::string mine;
  for (const ExtraTensor& buffer : buffers) mine += buffer.bytes;
  auto all = parts_.member.Gather(absl::StrCat("buffers ", evaluations_++),
                                  rank_ == 0 ? mine : "", StepDeadline());
  if (!all.ok()) return all.status();
  const std::string& theirs = all->front();
  if (theirs.size() != mine.size()) {
    return absl::InternalError("rank 0 has buffers of another size");
  }
  size_t offset = 0;
  for (ExtraTensor& buffer : buffers) {
    buffer.bytes = theirs.substr(offset, buffer.bytes.size());
    offset += buffer.bytes.size();
  }
  return SetBuffers(parts_.model, buffers);
}

absl::Status Trainer::Checkpoint() {
  if (rank_ != 0) return absl::OkStatus();
  TimelineSpan span(parts_.track, "checkpoint", {.step = step_});
  const absl::Status status = WriteCheckpointOfStep();
  if (status.ok()) {
    spdlog::info("checkpoint of step {} in {}", step_, options_.checkpoint_dir);
    RemoveOldCheckpoints(options_.checkpoint_dir, step_,
                         options_.checkpoint_keep);
    return status;
  }
  if (finished() || EndsTraining(status)) return status;
  spdlog::warn(
      "no checkpoint of step {}: {}. Training continues, and the next "
      "checkpoint is tried: see to the room and the permissions of {}",
      step_, std::string(status.message()), options_.checkpoint_dir);
  return absl::OkStatus();
}

absl::Status Trainer::WriteCheckpointOfStep() {
  auto optimizer = Optimizer::Create(options_.plan.optimizer);
  if (!optimizer.ok()) return optimizer.status();
  CheckpointContents contents{.progress = options_.progress,
                              .layout = parts_.flat.layout,
                              .slot_names = optimizer->slot_names(),
                              .extras = BuffersOf(parts_.model)};
  contents.progress.step = step_;
  contents.progress.cursor = options_.plan.CursorAt(step_);
  return WriteCheckpoint(
      options_.checkpoint_dir, contents, [this](const std::string& directory) {
        return parts_.exchange.SaveState(directory, StepDeadline());
      });
}

}  // namespace psring
