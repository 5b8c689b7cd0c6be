#include "worker/trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/process_names.h"
#include "common/cluster/worker_sum.h"
#include "common/log.h"
#include "common/printable.h"
#include "common/split_mix.h"
#include "worker/diverged.h"
#include "worker/sampler.h"
#include "worker/torch/torch_error.h"

namespace psring {
namespace {

// After the step that a worker has come to.
constexpr char kStops[] = ", and stops there";

// A device holds the training samples at most.
LoaderOptions ForEvaluation(LoaderOptions options) {
  options.resident = false;
  return options;
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts, const TrainerOptions& options)
    : parts_(parts),
      options_(options),
      activity_(parts.member.activities().own()),
      rank_(parts.member.job().rank()),
      num_workers_(parts.member.job().workers_size()),
      gradient_({.model = parts.model,
                 .train = parts.data.train,
                 .flat = parts.flat,
                 .memory = parts.memory,
                 .exchange = parts.exchange,
                 .cancellation = parts.cancellation,
                 .track = parts.track},
                {.seed = options.seed,
                 .rank = rank_,
                 .clip_norm = options.clip_norm,
                 .precision = options.precision,
                 .scale_loss = options.scale_loss,
                 .loader = options.loader}),
      losses_(parts.memory.device, parts.cancellation),
      evaluator_({.model = parts.model,
                  .test = parts.data.test,
                  .device = parts.memory.device,
                  .exchange = parts.exchange,
                  .member = parts.member,
                  .cancellation = parts.cancellation,
                  .track = parts.track,
                  .stop = parts.stop},
                 ForEvaluation(options.loader), options.precision,
                 options.batch_size, options.step_timeout),
      checkpoints_({.model = parts.model,
                    .layout = parts.flat.layout,
                    .exchange = parts.exchange,
                    .member = parts.member,
                    .track = parts.track},
                   options.checkpoints, options.step_timeout, options.plan,
                   options.progress),
      report_({.member = parts.member,
               .metrics = parts.metrics,
               .exchange = parts.exchange},
              options.plan),
      step_(options.progress.step) {}

Time Trainer::Deadline() const { return StepDeadline(options_.step_timeout); }

int64_t Trainer::epoch() const {
  return options_.plan.EpochOf(step_ - 1).epoch + 1;
}

double Trainer::EpochStats::ImagesPerSecond() const {
  return static_cast<double>(num_images) /
         std::max(absl::ToDoubleSeconds(time), 1e-9);
}

absl::Status Trainer::Run() {
  return CatchTorchErrors(
      [this] { return Train(); },
      [this] {
        return absl::StrCat(
            evaluating_ ? "evaluation after step " : "training, step ", step_,
            ", ",
            evaluating_ ? evaluator_.batch_size() : gradient_.batch_size(),
            " samples at once");
      });
}

absl::Status Trainer::Train() {
  if (parts_.device != nullptr) {
    auto clock =
        StepClock::Create(*parts_.device, parts_.compute, parts_.gpu_track);
    if (!clock.ok()) return clock.status();
    clock_ = *std::move(clock);
  }
  if (absl::Status s = checkpoints_.Begin(); !s.ok()) return s;
  if (finished()) {
    LogInfo("nothing is left to train: the checkpoint is of step $0, of $1",
            step_, options_.plan.total_steps);
    return EndEpoch();
  }
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
    const uint64_t draw = SplitMix64(options_.seed).Fork(steps.epoch).Next();
    while (step_ < steps.end && !finished()) {
      const int64_t before = step_;
      const auto samples_of = [&](int64_t step) {
        if (step >= steps.end) return Samples();  // --drop-last drops the rest
        const int64_t begin =
            std::min((step - steps.begin) * options_.batch_size, size);
        const int64_t end = std::min(begin + options_.batch_size, size);
        return Samples{{indices.begin() + begin, indices.begin() + end}, draw};
      };
      if (absl::Status s = Step(samples_of(step_), samples_of(step_ + 1));
          !s.ok()) {
        return s;
      }
      auto stops = AfterStep(before);
      if (!stops.ok()) return stops.status();
      if (*stops) return SaveEarly();
      if (finished()) break;
      stops = StopsHere();
      if (!stops.ok()) return stops.status();
      if (!*stops) continue;
      stops = EndSteps(/*stops=*/true);
      return stops.ok() ? SaveEarly() : stops.status();
    }
    const auto stops = EndSteps(/*stops=*/false);
    if (!stops.ok()) return stops.status();
    if (*stops) return SaveEarly();
    // Saved before an evaluation that takes long, or fails.
    const absl::Status saved = finished()
                                   ? checkpoints_.AtEnd(end_.step, end_.updates)
                                   : absl::OkStatus();
    absl::Status s = EndEpoch();
    if (!saved.ok()) return saved;
    if (!s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Trainer::StopsHere() {
  if (parts_.stop == nullptr) return false;
  const WaitingForOthers waiting(activity_);
  const auto stops = parts_.stop->StopsAfter(step_, Deadline());
  if (!stops.ok() || !*stops) return stops;
  if (!options_.runs_ahead) {
    LogInfo("SIGTERM: all workers stop after step $0 of $1", step_,
            options_.plan.total_steps);
  }
  return true;
}

absl::Status Trainer::SaveEarly() {
  stopped_ = true;
  return checkpoints_.AtEnd(end_.step, end_.updates);
}

absl::StatusOr<absl::Duration> Trainer::SlowDown() {
  const double factor = options_.slowdown.FactorOf(rank_, step_);
  if (factor <= 1) return absl::ZeroDuration();
  // Behind a step that a GPU still computes, the wait would cost nothing.
  if (absl::Status s = AwaitGpu(); !s.ok()) return s;
  const absl::Duration wait = (factor - 1) * compute_time_;
  if (wait <= absl::ZeroDuration()) return wait;
  TimelineSpan span(parts_.track, "slow", {.step = step_});
  times_.injected += wait;
  absl::Status slept = parts_.cancellation.SleepUntil(Now() + wait);
  if (!slept.ok()) return slept;
  return wait;
}

absl::Status Trainer::FinishStep() {
  TimelineSpan span(parts_.track, "wait", {.step = step_});
  const WaitingForOthers waiting(activity_, "the exchange of the step");
  const Time begin = Now();
  absl::Status status = parts_.exchange.Finish(Deadline());
  const Time end = Now();
  if (clock_ != nullptr) return status;
  times_.exposed += end - begin;
  parts_.member.figures().AddStep(step_, begin, end);
  return status;
}

absl::Status Trainer::TakeLoss(const at::Tensor& loss) {
  TimelineSpan span(parts_.track, "device", {.step = step_});
  if (parts_.memory.device.is_cpu()) span.Drop();
  const Time begin = Now();
  const auto known = losses_.Push(step_, loss, Deadline());
  if (!known.ok()) return known.status();
  if (clock_ == nullptr) times_.compute += Now() - begin;
  return NoteLoss(*known);
}

absl::Status Trainer::NoteLoss(const std::optional<KnownLoss>& known) {
  if (!known.has_value()) return absl::OkStatus();
  last_loss_ = known->value;
  epoch_stats_.loss_sum += last_loss_;
  if (std::isfinite(last_loss_)) return absl::OkStatus();
  return Diverged(absl::StrCat("loss of step ", known->step), last_loss_);
}

absl::Status Trainer::TakeTimes() {
  while (clock_ != nullptr) {
    const auto times = clock_->Next();
    if (!times.ok()) return times.status();
    if (!times->has_value()) return absl::OkStatus();
    const StepClock::Times& step = **times;
    compute_time_ = step.compute;
    times_.compute += step.compute;
    times_.exposed += step.exposed;
    times_.busy.Add(step.injected + step.compute);
    if (!step.arrived.has_value()) continue;
    parts_.member.figures().AddStep(step.step, *step.arrived,
                                    *step.arrived + step.exposed);
  }
  return absl::OkStatus();
}

absl::Status Trainer::AwaitGpu() {
  if (clock_ == nullptr) return absl::OkStatus();
  const WaitingForOthers waiting(activity_, "the GPU");
  absl::Status status = clock_->AwaitEnd(Deadline(), parts_.cancellation);
  return status.ok() ? TakeTimes() : status;
}

absl::StatusOr<bool> Trainer::EndSteps(bool stops) {
  const Time begin = Now();
  if (absl::Status s = AwaitGpu(); !s.ok()) return s;
  const auto last_loss = losses_.Flush(Deadline());
  if (!last_loss.ok()) return last_loss.status();
  if (absl::Status s = NoteLoss(*last_loss); !s.ok()) return s;
  end_ = {step_, options_.plan.UpdatesAt(step_)};
  const auto all_stop = CatchUp(stops);
  const absl::Duration took = Now() - begin;
  training_time_ += took;
  epoch_stats_.time += took;
  return all_stop;
}

absl::StatusOr<bool> Trainer::CatchUp(bool stops) {
  if (!options_.catches_up) return stops;
  TimelineSpan span(parts_.track, "catch up", {.step = step_});
  const WaitingForOthers waiting(activity_, "workers with steps to make");
  const Time begin = Now();
  const auto all =
      parts_.member.Gather("catch up", absl::StrCat(step_, stops ? kStops : ""),
                           Time::InfiniteFuture());
  const absl::Duration took = Now() - begin;
  times_.exposed += took;
  times_.catch_up += took;
  if (!all.ok()) return all.status();
  int64_t made = 0;  // by all workers, since this run began
  for (int rank = 0; rank < static_cast<int>(all->size()); ++rank) {
    absl::string_view theirs = (*all)[rank];
    stops |= absl::ConsumeSuffix(&theirs, kStops);
    int64_t step = 0;
    if (!absl::SimpleAtoi(theirs, &step)) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe(parts_.member.job().workers(rank)), " is at step '",
          Printable(theirs, 64), "', which is no number"));
    }
    made += step - options_.plan.first_step;
  }
  if (!stops || !options_.runs_ahead) return stops;
  // Rounded up: that step has no checkpoint yet.
  end_ = {options_.plan.first_step + (made + num_workers_ - 1) / num_workers_,
          options_.plan.first_updates + made};
  LogInfo(
      "SIGTERM: every worker stops where it is, this one after step $0 of $1 "
      "and all after step $2 on average",
      step_, options_.plan.total_steps, end_.step);
  return true;
}

absl::Status Trainer::Step(const Samples& now, const Samples& next) {
  if (absl::Status s = parts_.cancellation.status(); !s.ok()) return s;
  TimelineSpan span(parts_.track, "step", {.step = step_});
  activity_.Work("computing");
  const Time start = Now();
  const auto injected = SlowDown();
  if (!injected.ok()) return injected.status();
  const Time begin = Now();
  absl::Status status =
      clock_ == nullptr ? absl::OkStatus() : clock_->Begin(step_, *injected);
  const auto loss = gradient_.Compute(step_, now, next, clock_.get());
  if (!loss.ok()) return loss.status();
  if (clock_ != nullptr) {
    status.Update(clock_->EndBackward());
    if (!status.ok()) return status;
  } else {
    compute_time_ = Now() - begin;
    times_.compute += compute_time_;
    times_.busy.Add(Now() - start);
  }
  if (absl::Status s = gradient_.Submit(); !s.ok()) return s;
  if (absl::Status s = FinishStep(); !s.ok()) return s;
  if (clock_ != nullptr) {
    if (absl::Status s = clock_->End(); !s.ok()) return s;
  }
  if (absl::Status s = TakeLoss(*loss); !s.ok()) return s;
  if (absl::Status s = TakeTimes(); !s.ok()) return s;
  step_ = parts_.exchange.step();
  parts_.member.ReportStep(step_);
  const absl::Duration took = Now() - start;
  training_time_ += took;
  ++num_steps_;
  ++epoch_stats_.num_steps;
  epoch_stats_.num_images += gradient_.batch_size();
  num_images_ += gradient_.batch_size();
  epoch_stats_.time += took;
  return absl::OkStatus();
}

absl::StatusOr<bool> Trainer::AfterStep(int64_t before) {
  report_.TellStep(State(), times_);
  if (!checkpoints_.IsDue(before, step_)) return false;
  const auto stops = EndSteps(/*stops=*/false);
  if (!stops.ok() || *stops) return stops;
  if (absl::Status s = checkpoints_.AfterSteps(before, step_); !s.ok()) {
    return s;
  }
  return false;
}

TrainingReport::State Trainer::State() const {
  return {.step = step_,
          .num_steps = num_steps_,
          .time = training_time_,
          .loss = last_loss_,
          .images_per_second = epoch_stats_.ImagesPerSecond() * num_workers_,
          .num_images = num_images_};
}

absl::Status Trainer::EndEpoch() {
  evaluating_ = true;
  const auto evaluation = evaluator_.Evaluate(step_);
  if (!evaluation.ok()) return evaluation.status();
  evaluating_ = false;
  if (!evaluation->has_value()) {
    LogInfo("SIGTERM: the model of step $0 is not evaluated", step_);
    return absl::OkStatus();
  }
  const EpochStats stats = std::exchange(epoch_stats_, EpochStats());
  std::vector<double> sums = {stats.loss_sum,
                              static_cast<double>(stats.num_steps),
                              stats.ImagesPerSecond()};
  {
    const WaitingForOthers waiting(activity_, "a sum over all workers");
    const absl::Status summed =
        SumOverWorkers(parts_.member, absl::StrCat("epoch ", num_epochs_++),
                       absl::MakeSpan(sums), Deadline());
    if (!summed.ok()) return summed;
  }
  // The last update's; an earlier one's shows in the next step's loss.
  absl::Status diverged;
  if (finished() && !std::isfinite((*evaluation)->loss)) {
    diverged = Diverged(absl::StrCat("test loss after step ", step_),
                        (*evaluation)->loss);
  }
  if (rank_ != 0) return diverged;
  report_.TellEpoch(State(),
                    {.number = epoch(),
                     .train_loss = sums[1] > 0 ? sums[0] / sums[1] : NAN,
                     .evaluation = **evaluation,
                     .images_per_second = sums[2]});
  return diverged;
}

}  // namespace psring
