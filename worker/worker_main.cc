// psring worker: one worker process, in either topology. Where a launcher
// starts all processes of a job with the same command, the first ones become
// servers.
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/layout.h"
#include "common/optim/optimizer.h"
#include "common/optim/policies.h"
#include "common/optim/sync_policy.h"
#include "common/process/process_main.h"
#include "ps/server.h"
#include "worker/models/model.h"
#include "worker/slowdown.h"
#include "worker/worker.h"

namespace psring {
namespace {

std::vector<std::string> SyncNames() {
  std::vector<std::string> names;
  for (const SyncPolicy& policy : SyncPolicies()) names.push_back(policy.name);
  return names;
}

// "bsp (every worker, each step), ssp (...)".
std::string SyncHelp() {
  std::vector<std::string> parts;
  for (const SyncPolicy& policy : SyncPolicies()) {
    parts.push_back(absl::StrCat(policy.name, " (", policy.help, ")"));
  }
  return absl::StrJoin(parts, ", ");
}

bool TakesStaleness(const SyncPolicy& policy) {
  return policy.lead == SyncPolicy::Lead::kStaleness;
}

// Flags as the user types them; Fill turns them into options.
struct WorkerFlags {
  ProcessFlags process;
  std::string sync = "bsp";
  int64_t staleness = -1;
  int32_t backup_workers = 0;
  bool staleness_lr = false;
  double delay_compensation = 0;
  int64_t local_steps = 1;
  std::string compress = "none";
  std::string record;
  std::string replay;
  double clip_norm = 0;
  std::string model = "lenet";
  std::string data = "digits";
  int64_t batch_size = 64;
  int64_t epochs = 10;
  int64_t steps = 0;
  std::string optimizer = "sgd";
  double lr = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::string lr_schedule = "constant";
  double warmup_epochs = 0;
  double lr_step_epochs = 30;
  double lr_gamma = 0.1;
  bool scale_lr = false;
  int64_t seed = 0;
  double bucket_mb = kDefaultBucketBytes >> 20;
  int shard_threads = 0;
  std::string device = "auto";
  std::vector<std::string> slow;

  void AddTo(CLI::App& app, WorkerOptions& options);
  void AddConsistencyFlags(CLI::App& app);
  void AddTrainingFlags(CLI::App& app);
  void AddOptimizerFlags(CLI::App& app);
  absl::Status Fill(WorkerOptions& options) const;
};

void WorkerFlags::AddTo(CLI::App& app, WorkerOptions& options) {
  app.add_option("--mode", process.mode, "Topology")
      ->check(CLI::IsMember({"ps", "ring"}))
      ->capture_default_str();
  AddConsistencyFlags(app);
  AddTrainingFlags(app);
  AddOptimizerFlags(app);
  process.AddTo(app);
  app.add_option(
         "--shard-threads", shard_threads,
         "Shard threads of a process that a launcher made a server; 0: the "
         "host's cores, at most 4")
      ->check(CLI::Range(0, 64))
      ->capture_default_str()
      ->group("Cluster");
  app.add_option("--threads", options.threads,
                 "Compute threads; 0: this worker's share of the host's cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--slow", slow,
                 "Slows a worker down on purpose: worker:RANK:xFACTOR or "
                 "random:p=PROBABILITY:xFACTOR; may be repeated")
      ->allow_extra_args(false)
      ->group("Faults");
  app.add_option(
         "--device", device,
         "Device to compute on: auto (a GPU if there is one), cpu, cuda "
         "(the GPU with this worker's index on its host) or cuda:INDEX")
      ->capture_default_str();
  app.add_flag(
      "--allow-shared-gpu", options.allow_shared_gpu,
      "Lets workers share a GPU: for trying things out, not for speed");
  app.add_option(
         "--ring-backend", options.ring_backend,
         "What sums gradients in ring mode: nccl (on GPUs), host (memory "
         "and network) or auto (nccl if the worker has a GPU)")
      ->check(CLI::IsMember({"auto", "host", "nccl"}))
      ->capture_default_str();
  app.add_option("--comm-threads", options.ring.comm_threads,
                 "Threads of a sum in shared memory (ring); 0: this worker's "
                 "share of the host's cores, at most 4")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  const char* group = "Checkpoints";
  app.add_option("--checkpoint-dir", options.checkpoint_dir,
                 "Folder for checkpoints, which all hosts must share")
      ->group(group);
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "Steps between checkpoints; 0: only at the end")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(group);
  app.add_option("--checkpoint-keep", options.checkpoint_keep,
                 "How many checkpoints to keep, the newest; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--resume", options.resume,
               "Resumes from the newest checkpoint in --checkpoint-dir that is "
               "whole")
      ->group(group);
}

void WorkerFlags::AddConsistencyFlags(CLI::App& app) {
  const std::string stale = NamesOf(IsStale);
  app.add_option("--sync", sync,
                 absl::StrCat("ps mode's consistency: ", SyncHelp()))
      ->check(CLI::IsMember(SyncNames()))
      ->capture_default_str();
  app.add_option(
         "--staleness", staleness,
         absl::StrCat(NamesOf(TakesStaleness),
                      ": steps that a worker may be ahead of the slowest"))
      ->check(CLI::Range(int64_t{0}, int64_t{1000000}));
  app.add_option("--backup-workers", backup_workers,
                 "bsp: a step closes without this many gradients, the last of "
                 "each piece of the model; those are dropped (Chen et al. "
                 "2016)")
      ->check(CLI::Range(0, 4095))
      ->capture_default_str();
  app.add_flag("--staleness-lr", staleness_lr,
               absl::StrCat(stale,
                            ": an update's rate is divided by its staleness "
                            "(Zhang et al. 2016)"));
  app.add_option(
         "--delay-compensation", delay_compensation,
         absl::StrCat(
             stale,
             ": gradients are corrected by lambda * g * g * (w - w when read) "
             "(Zheng et al. 2017). Costs the servers a copy of the parameters "
             "for each worker; 0: none"))
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app.add_option(
         "--local-steps", local_steps,
         "ring, bsp: every worker takes this many optimizer steps on its "
         "own before all average their parameters (Stich 2019). The "
         "optimizer's state is not averaged; a checkpoint holds rank "
         "0's")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option(
         "--compress", compress,
         "Compresses each worker's gradients before they leave: none, fp16, "
         "bf16, int8 (blocks of 256), onebit (the mean of each sign in blocks "
         "of 1024) or topk:F (the largest F of each bucket, 0 < F <= 0.5). "
         "What rounding loses is added to the next step's gradients. Sums "
         "stay float32, and so does what returns: parameters, or a ring's "
         "mean. Where processes share memory nothing is sent, and only the "
         "values change. Checkpoints do not hold what was lost")
      ->capture_default_str();
  app.add_option(
      "--record", record,
      absl::StrCat(stale,
                   "; --backup-workers: folder in which each server records "
                   "the order of updates, on its own host"));
  app.add_option(
      "--replay", replay,
      "Folder that --record named: the same job applies its updates in "
      "the recorded order and ends with the same bits");
}

void WorkerFlags::AddTrainingFlags(CLI::App& app) {
  app.add_option("--model", model, absl::StrCat("Model: ", kKnownModels))
      ->capture_default_str();
  app.add_option("--data", data,
                 "Training data: digits (embedded), mnist:DIR, cifar10:DIR")
      ->capture_default_str();
  app.add_option("--batch-size", batch_size, "Samples a step, per worker")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  auto* epochs_option =
      app.add_option("--epochs", epochs, "Passes over the training data")
          ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
          ->capture_default_str();
  app.add_option("--steps", steps, "Number of steps, in place of --epochs")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->excludes(epochs_option);
  app.add_option("--seed", seed,
                 "Seed of the first weights, the order of the data and dropout")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--bucket-mb", bucket_mb,
                 "Size of the buckets in which gradients leave, in MiB")
      ->check(CLI::Range(0.001, 1024.0))
      ->capture_default_str();
}

void WorkerFlags::AddOptimizerFlags(CLI::App& app) {
  const char* group = "Optimizer";
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)
        ->capture_default_str()
        ->group(group);
  };
  const CLI::Range any(0.0, 1e9);
  add("--optimizer", optimizer, "Optimizer, as torch.optim defines it")
      ->check(CLI::IsMember(OptimizerNames()));
  add("--lr", lr, "Learning rate")->check(any);
  add("--momentum", momentum,
      "Momentum of momentum and nesterov; with sgd, selects momentum")
      ->check(CLI::Range(0.0, 1.0));
  add("--weight-decay", weight_decay, "L2 penalty; decoupled in adamw")
      ->check(any);
  add("--beta1", beta1, "beta1 of adam and adamw")->check(CLI::Range(0.0, 1.0));
  add("--beta2", beta2, "beta2 of adam and adamw")->check(CLI::Range(0.0, 1.0));
  add("--epsilon", epsilon, "epsilon of adam and adamw")->check(any);
  add("--lr-schedule", lr_schedule, "How the learning rate changes")
      ->check(CLI::IsMember({"constant", "step", "cosine"}));
  add("--clip-norm", clip_norm,
      "Clips each worker's own gradient to this global norm before it leaves, "
      "in every mode; the mean of all is not clipped. Nothing leaves while "
      "backward runs then. 0: no clipping")
      ->check(any);
  add("--warmup-epochs", warmup_epochs,
      "Epochs over which the rate climbs linearly")
      ->check(any);
  add("--lr-step-epochs", lr_step_epochs,
      "--lr-schedule=step: epochs between decays")
      ->check(CLI::Range(1e-3, 1e9));
  add("--lr-gamma", lr_gamma, "--lr-schedule=step: factor of each decay")
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--scale-lr", scale_lr,
               "Multiplies the rate by the number of workers")
      ->group(group);
}

// "mnist:/data/mnist" is "mnist" to the others: folders differ between hosts.
std::string DataKind(const std::string& data) {
  return absl::StartsWith(data, "digits") ? data
                                          : data.substr(0, data.find(':'));
}

std::string Absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).string();
}

absl::Status WorkerFlags::Fill(WorkerOptions& options) const {
  const SyncPolicy& policy = *FindSyncPolicy(sync);  // the flag is checked
  if (TakesStaleness(policy) && staleness < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--sync=", sync,
        " needs --staleness=K, the steps that a worker may be ahead"));
  }
  if (!TakesStaleness(policy) && staleness >= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--staleness is for --sync=", NamesOf(TakesStaleness),
                     ", not for ", sync));
  }
  if (process.mode == "ring" && !policy.barrier) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--mode=ring is synchronous: --sync=", sync, " is for --mode=ps"));
  }
  if (options.resume && options.checkpoint_dir.empty()) {
    return absl::InvalidArgumentError("--resume needs --checkpoint-dir");
  }
  if (options.checkpoint_every > 0 && options.checkpoint_dir.empty()) {
    return absl::InvalidArgumentError(
        "--checkpoint-every needs --checkpoint-dir");
  }
  const auto slowdown = Slowdown::Create(slow, /*seed=*/0);
  if (!slowdown.ok()) return slowdown.status();
  auto wish = ParseDevice(device);
  if (!wish.ok()) return wish.status();
  options.device = *wish;
  if (options.checkpoint_every % local_steps != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--checkpoint-every=", options.checkpoint_every,
        " is not a multiple of --local-steps=", local_steps,
        ": between averagings each worker has parameters of its own"));
  }
  proto::JobSpec& spec = options.spec;
  spec.set_mode(process.mode == "ring" ? proto::RING : proto::PARAMETER_SERVER);
  for (const std::string& fault : slow) spec.add_slow(fault);
  spec.set_sync(policy.sync);
  spec.set_staleness(TakesStaleness(policy) ? staleness : 0);
  spec.set_backup_workers(backup_workers);
  spec.set_staleness_lr(staleness_lr);
  spec.set_delay_compensation(delay_compensation);
  spec.set_local_steps(local_steps);
  spec.set_compress(compress);
  const bool nccl = process.mode == "ring" && options.ring_backend == "nccl";
  spec.set_ring_backend(nccl ? "nccl" : "");
  spec.set_record_dir(Absolute(record));
  spec.set_replay_dir(Absolute(replay));
  spec.set_clip_norm(clip_norm);
  spec.set_model(model);
  spec.set_data(DataKind(data));
  spec.set_batch_size(batch_size);
  spec.set_seed(seed);
  spec.set_epochs(epochs);
  spec.set_steps(steps);
  spec.set_bucket_bytes(static_cast<int64_t>(bucket_mb * (1 << 20)));
  spec.set_scale_lr(scale_lr);
  spec.set_warmup_epochs(warmup_epochs);
  proto::OptimizerSettings& settings = *spec.mutable_optimizer();
  settings.set_name(optimizer == "sgd" && momentum > 0 ? "momentum"
                                                       : optimizer);
  settings.set_lr(lr);
  settings.set_momentum(momentum);
  settings.set_weight_decay(weight_decay);
  settings.set_beta1(beta1);
  settings.set_beta2(beta2);
  settings.set_epsilon(epsilon);
  settings.mutable_schedule()->set_kind(lr_schedule);
  if (lr_schedule == "step") {
    settings.mutable_schedule()->set_decay_factor(lr_gamma);
    spec.set_decay_every_epochs(lr_step_epochs);
  }
  if (absl::Status s = CheckPolicies(spec, std::max(process.workers, 0));
      !s.ok()) {
    return s;
  }
  if (!policy.barrier || backup_workers > 0) {
    spec.set_checkpoint_every(options.checkpoint_every);
  }
  options.checkpoint_dir = Absolute(options.checkpoint_dir);
  options.data = data;
  options.same_host = process.SameHostWish();
  options.step_timeout = process.step_timeout();
  options.metrics_dir = process.metrics_dir;
  options.timeline = process.timeline;
  return absl::OkStatus();
}

absl::Status Run(const WorkerFlags& flags, WorkerOptions& options,
                 Cancellation& cancellation) {
  if (absl::Status s = flags.Fill(options); !s.ok()) return s;
  auto cluster = flags.process.Cluster(/*is_ps_process=*/false);
  if (!cluster.ok()) return cluster.status();
  options.cluster = *cluster;
  if (cluster->placement.role == proto::PS) {
    return RunServer({.cluster = *cluster,
                      .shard_threads = flags.shard_threads,
                      .same_host = options.same_host,
                      .step_timeout = options.step_timeout,
                      .metrics_dir = options.metrics_dir,
                      .timeline = options.timeline},
                     cancellation);
  }
  return RunWorker(options, cancellation);
}

}  // namespace
}  // namespace psring

int main(int argc, char** argv) {
  using namespace psring;
  CLI::App app("One worker process of a job.", "psring worker");
  app.footer(
      "Example, once a host:\n"
      "  psring worker --coordinator=10.0.0.1:7000 --model=lenet "
      "--data=mnist:/data/mnist --sync=bsp --epochs=10\n"
      "and without servers, rank 0 hosting the coordinator:\n"
      "  psring worker --mode=ring --coordinator=10.0.0.2:7000 --workers=4 "
      "--rank=0 ...");
  app.set_version_flag("--version", std::string("libtorch ") + TORCH_VERSION);
  WorkerFlags flags;
  WorkerOptions options;
  flags.AddTo(app, options);
  return ProcessMain(app, flags.process, argc, argv,
                     [&](Cancellation& cancellation) {
                       return Run(flags, options, cancellation);
                     });
}
