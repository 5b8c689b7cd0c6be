// What the flags of `psring worker` make: its options, and the job's.
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/optim/optimizer.h"
#include "common/optim/policies.h"
#include "common/optim/sync_policy.h"
#include "common/slowdown.h"
#include "worker/data/load_dataset.h"
#include "worker/torch/precision.h"
#include "worker/worker_flags.h"

namespace psring {
namespace {

constexpr double kAdamWDecay = 0.01;  // torch.optim.AdamW's

// The bound that --sync or --staleness (-1: not given) says.
absl::StatusOr<SyncChoice> TakeBound(const std::string& sync,
                                     int64_t staleness) {
  auto choice = ParseSync(sync);
  if (!choice.ok()) return choice.status();
  const bool bounded = TakesBound(*choice->policy);
  if (staleness >= 0 && !bounded) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--staleness is for --sync=", NamesOf(TakesBound), ", not for ", sync));
  }
  if (staleness >= 0 && choice->staleness >= 0 &&
      staleness != choice->staleness) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sync=", sync, " and --staleness=", staleness,
                     " differ: give one of them"));
  }
  choice->staleness = std::max(choice->staleness, staleness);
  if (bounded && choice->staleness < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sync=", sync,
                     " needs the steps that a worker may be "
                     "ahead of the slowest: --sync=",
                     sync, ":K"));
  }
  return choice;
}

// As it is, where the current folder is gone: whoever opens it says so.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return path.empty() || error ? path : absolute.string();
}

}  // namespace

proto::OptimizerSettings WorkerFlags::OptimizerOf(
    const CommandLine& line) const {
  proto::OptimizerSettings settings;
  settings.set_name(optimizer == "sgd" && momentum > 0 ? "momentum"
                                                       : optimizer);
  settings.set_lr(lr);
  settings.set_momentum(momentum);
  const bool own_decay = optimizer == "adamw" && !line.Has("--weight-decay");
  settings.set_weight_decay(own_decay ? kAdamWDecay : weight_decay);
  settings.set_beta1(beta1);
  settings.set_beta2(beta2);
  settings.set_epsilon(epsilon);
  settings.mutable_schedule()->set_kind(lr_schedule);
  if (lr_schedule == "step") {
    settings.mutable_schedule()->set_decay_factor(lr_gamma);
  }
  return settings;
}

absl::Status WorkerFlags::CheckUses(const CommandLine& line,
                                    const WorkerOptions& options) const {
  const bool is_adam = IsAdam(optimizer);
  const bool steps_down = lr_schedule == "step";
  const bool saves = !options.start.directory.empty();
  const struct {
    const char* flag;
    bool used;
    const char* where;
  } kUses[] = {
      {"--momentum", !is_adam, "--optimizer=sgd, momentum and nesterov"},
      {"--beta1", is_adam, "--optimizer=adam and adamw"},
      {"--beta2", is_adam, "--optimizer=adam and adamw"},
      {"--epsilon", is_adam, "--optimizer=adam and adamw"},
      {"--lr-step-epochs", steps_down, "--lr-schedule=step"},
      {"--lr-gamma", steps_down, "--lr-schedule=step"},
      {"--checkpoint-keep", saves, "a job with --checkpoint-dir"},
  };
  for (const auto& use : kUses) {
    if (use.used || !line.Has(use.flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(use.flag, " is for ", use.where,
                     ": it has no effect here. Leave it out"));
  }
  return absl::OkStatus();
}

// Named as the user has given it.
absl::Status WorkerFlags::CheckOptimizer(const CommandLine& line) const {
  const absl::Status status = Optimizer::Create(OptimizerOf(line)).status();
  absl::string_view what = status.message();
  if (status.ok() || !absl::ConsumePrefix(&what, "optimizer: ")) return status;
  return absl::InvalidArgumentError(absl::StrCat("--", what));
}

absl::Status WorkerFlags::CheckCheckpoints(const WorkerOptions& options) const {
  const StartWish& start = options.start;
  if (start.resume && start.autoresume) {
    return absl::InvalidArgumentError(
        "--resume needs a checkpoint, and --autoresume does not: choose one");
  }
  const char* needs_directory = start.resume           ? "--resume"
                                : start.autoresume     ? "--autoresume"
                                : checkpoint_every > 0 ? "--checkpoint-every"
                                                       : nullptr;
  if (needs_directory != nullptr && start.directory.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(needs_directory, " needs --checkpoint-dir"));
  }
  if (checkpoint_every % local_steps != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--checkpoint-every=", checkpoint_every,
        " is not a multiple of --local-steps=", local_steps,
        ": between averagings each worker has parameters of its own. Choose "
        "a multiple"));
  }
  return absl::OkStatus();
}

proto::JobSpec WorkerFlags::SpecOf(const CommandLine& line,
                                   const SyncChoice& choice,
                                   const WorkerOptions& options) const {
  proto::JobSpec spec = options.spec;
  spec.set_mode(process.mode == "ring" ? proto::RING : proto::PARAMETER_SERVER);
  for (const std::string& fault : slow) spec.add_slow(fault);
  spec.set_sync(choice.policy->sync);
  spec.set_staleness(std::max(choice.staleness, int64_t{0}));
  spec.set_backup_workers(backup_workers);
  spec.set_staleness_lr(staleness_lr);
  spec.set_delay_compensation(delay_compensation);
  spec.set_local_steps(local_steps);
  spec.set_compress(compress);
  spec.set_precision(precision == "fp32" ? "" : precision);
  const bool nccl = process.mode == "ring" && options.ring_backend == "nccl";
  spec.set_ring_backend(nccl ? "nccl" : "");
  spec.set_record_dir(Absolute(record));
  spec.set_replay_dir(Absolute(replay));
  spec.set_clip_norm(clip_norm);
  spec.set_model(model);
  spec.set_data(DatasetKind(data));
  spec.set_batch_size(batch_size);
  spec.set_seed(seed);
  spec.set_sync_batch_norm(sync_batch_norm);
  spec.set_drop_last(drop_last);
  spec.set_epochs(epochs);
  spec.set_steps(steps);
  spec.set_bucket_bytes(static_cast<int64_t>(bucket_mb * (1 << 20)));
  spec.set_scale_lr(scale_lr);
  spec.set_warmup_epochs(warmup_epochs);
  *spec.mutable_optimizer() = OptimizerOf(line);
  if (lr_schedule == "step") spec.set_decay_every_epochs(lr_step_epochs);
  spec.set_checkpoint_every(checkpoint_every);
  return spec;
}

absl::Status WorkerFlags::Fill(const CommandLine& line,
                               WorkerOptions& options) const {
  if (absl::Status s = CheckUses(line, options); !s.ok()) return s;
  if (absl::Status s = CheckOptimizer(line); !s.ok()) return s;
  const auto choice = TakeBound(sync, staleness);
  if (!choice.ok()) return choice.status();
  if (process.mode == "ring" && !choice->policy->barrier) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--mode=ring is synchronous: --sync=", sync, " is for --mode=ps"));
  }
  if (absl::Status s = CheckCheckpoints(options); !s.ok()) return s;
  const auto slowdown = Slowdown::Create(slow, /*seed=*/0);
  if (!slowdown.ok()) return slowdown.status();
  auto wish = ParseDevice(device);
  if (!wish.ok()) return wish.status();
  options.device = *wish;
  const auto numbers = ParsePrecision(precision);
  if (!numbers.ok()) return numbers.status();
  options.precision = *numbers;
  options.spec = SpecOf(line, *choice, options);
  const int workers = std::max(process.workers, 0);
  if (absl::Status s = CheckPolicies(options.spec, workers); !s.ok()) return s;
  options.start.directory = Absolute(options.start.directory);
  options.data = data;
  options.same_host = process.SameHostWish();
  options.step_timeout = process.step_timeout();
  options.metrics_dir = process.metrics_dir;
  options.tensorboard = process.tensorboard;
  options.timeline = process.timeline;
  return absl::OkStatus();
}

}  // namespace psring
