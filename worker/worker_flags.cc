#include "worker/worker_flags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/cluster/model_parts.h"
#include "common/optim/optimizer.h"
#include "common/optim/sync_policy.h"
#include "worker/data/load_dataset.h"
#include "worker/models/model.h"

namespace psring {
namespace {

// What is wrong with a flag's value; empty: nothing.
std::string About(const std::string& value, const absl::Status& status) {
  return status.ok()
             ? ""
             : absl::StrCat("\"", value, "\": ", std::string(status.message()));
}

// "bsp (every worker, each step), ssp:K (...)".
std::string SyncHelp() {
  std::vector<std::string> parts;
  for (const SyncPolicy& policy : SyncPolicies()) {
    parts.push_back(
        absl::StrCat(NameWithBound(policy, "K"), " (", policy.help, ")"));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

void WorkerFlags::AddTo(CommandLine& line, WorkerOptions& options) {
  line.Add("--mode", process.mode, "Topology").OneOf({"ps", "ring"});
  AddConsistencyFlags(line);
  AddTrainingFlags(line);
  AddOptimizerFlags(line);
  process.AddTo(line);
  line.Add("--shard-threads", shard_threads,
           "Shard threads of a process that a launcher made a server; 0: the "
           "host's cores, at most 4")
      .Range(0, kMaxShardThreads)
      .Group("Cluster");
  line.Add("--threads", options.threads,
           "Compute threads; 0: this worker's share of the host's cores")
      .Range(0, 1024);
  line.Add("--slow", slow,
           "Slows a worker down on purpose: worker:RANK:xFACTOR or "
           "random:p=PROBABILITY:xFACTOR, by up to x1000; may be repeated")
      .OneValueEach()
      .Group("Faults");
  AddDeviceFlags(line, options);
  AddCheckpointFlags(line, options);
}

void WorkerFlags::AddDeviceFlags(CommandLine& line, WorkerOptions& options) {
  line.Add("--device", device,
           "Device to compute on: auto (a GPU if there is one), cpu, cuda "
           "(the GPU with this worker's index on its host) or cuda:INDEX");
  line.Add("--precision", precision,
           "Numbers that the model computes in: fp32, tf32 (GPUs: products of "
           "matrices rounded to it), bf16, or fp16 (GPUs; the loss is scaled). "
           "Parameters and the gradients that travel are float32")
      .OneOf({"fp32", "tf32", "bf16", "fp16"});
  line.Add("--channels-last", options.channels_last,
           "Images with their channels innermost, which convolutions in "
           "bf16, fp16 or tf32 may be faster with");
  line.Add("--deterministic", options.deterministic,
           "GPUs: the same bits in every run, at the price of speed. CPUs "
           "have them anyway");
  line.Add("--loader-threads", options.loader_threads,
           "Threads that prepare the next step's samples while this one "
           "computes; 0: none on a CPU; on a GPU, none where the data "
           "set is small enough to lie there, else 2. Where --data is "
           "images:DIR, 0 means: one where the CPU computes; where a GPU does, "
           "this worker's share of the host's cores")
      .Range(0, 64);
  line.Add("--allow-shared-gpu", options.allow_shared_gpu,
           "Lets workers share a GPU: for trying things out, not for speed");
  line.Add("--affinity", options.affinity,
           "auto: a worker on a GPU keeps to the cores of the GPU's NUMA node; "
           "off: it runs on every core that it may use")
      .OneOf({"auto", "off"});
  line.Add("--ring-backend", options.ring_backend,
           "What sums gradients in ring mode: nccl (on GPUs), host (memory "
           "and network) or auto (nccl if all workers can)")
      .OneOf({"auto", "host", "nccl"});
  line.Add("--host-sum", options.host_sum,
           "What sums gradients within a host before they go to servers: auto "
           "(NCCL, where a host has several workers on GPUs, with --sync=bsp), "
           "or off: each worker pushes its own")
      .OneOf({"auto", "off"});
  line.Add("--comm-threads", options.ring.comm_threads,
           "Threads of a sum in shared memory (ring); 0: this worker's "
           "share of the host's cores, at most 4")
      .Range(0, 64);
}

void WorkerFlags::AddCheckpointFlags(CommandLine& line,
                                     WorkerOptions& options) {
  const char* group = "Checkpoints";
  line.Add("--checkpoint-dir", options.start.directory,
           "Folder for checkpoints, which worker 0's host and the servers' "
           "hosts share; in a ring only worker 0 needs it, with --local-steps "
           "every worker")
      .Group(group);
  line.Add("--checkpoint-every", checkpoint_every,
           "Steps between checkpoints; 0: only at the end")
      .Range(int64_t{0}, int64_t{1} << 40)
      .Group(group);
  line.Add("--checkpoint-keep", options.checkpoint_keep,
           "How many checkpoints to keep, the newest; 0: all")
      .Range(int64_t{0}, int64_t{1} << 40)
      .Group(group);
  line.Add("--resume", options.start.resume,
           "Resumes from the newest checkpoint in --checkpoint-dir that is "
           "whole")
      .Group(group);
  line.Add("--autoresume", options.start.autoresume,
           "Like --resume, but begins afresh where there is no checkpoint: "
           "for a job that is restarted with the same flags")
      .Group(group);
  line.Add("--stopped-exit-code", options.stopped_exit_code,
           "Exit code after SIGTERM has ended the training early, for an "
           "engine that starts again what ends with another code than 0, "
           "such as Kubernetes")
      .Range(0, 125)
      .Group(group);
}

void WorkerFlags::AddConsistencyFlags(CommandLine& line) {
  const std::string stale = NamesOf(IsStale);
  line.Add("--sync", sync, absl::StrCat("ps mode's consistency: ", SyncHelp()))
      .Check([](const std::string& value) {
        return std::string(ParseSync(value).status().message());
      });
  line.Add("--staleness", staleness,
           absl::StrCat(NamesOf(TakesBound),
                        ": K, the steps that a worker may be ahead of the "
                        "slowest"))
      .Range(int64_t{0}, kMaxStaleness)
      .Default("");
  line.Add("--backup-workers", backup_workers,
           "bsp: a step closes without this many gradients, the last of "
           "each piece of the model; those are dropped (Chen et al. "
           "2016)")
      .Range(0, 4095);
  line.Add("--staleness-lr", staleness_lr,
           absl::StrCat(stale,
                        ": an update's rate is divided by its staleness "
                        "(Zhang et al. 2016)"));
  line.Add(
          "--delay-compensation", delay_compensation,
          absl::StrCat(
              stale,
              ": gradients are corrected by lambda * g * g * (w - w when read) "
              "(Zheng et al. 2017). Costs the servers a copy of the parameters "
              "for each worker; 0: none"))
      .Range(0.0, 1e9);
  line.Add("--local-steps", local_steps,
           "ring, bsp: every worker takes this many optimizer steps on its "
           "own before all average their parameters (Stich 2019). The "
           "optimizer's state is not averaged; a checkpoint holds rank "
           "0's")
      .Range(int64_t{1}, int64_t{1} << 40);
  line.Add(
      "--compress", compress,
      "Compresses each worker's gradients before they leave: none, fp16, "
      "bf16, int8 (blocks of 256), onebit (the mean of each sign in blocks "
      "of 1024) or topk:F (the largest F of each bucket, 0 < F <= 0.5). "
      "What rounding loses is added to the next step's gradients. Sums "
      "stay float32, and so does what returns: parameters, or a ring's "
      "mean. Where processes share memory nothing is sent, and only the "
      "values change. Checkpoints do not hold what was lost");
  line.Add(
      "--record", record,
      absl::StrCat(stale,
                   "; --backup-workers: folder in which each server records "
                   "the order of updates, on its own host"));
  line.Add("--replay", replay,
           "Folder that --record named: the same job applies its updates in "
           "the recorded order and ends with the same bits");
}

void WorkerFlags::AddTrainingFlags(CommandLine& line) {
  line.Add("--model", model, absl::StrCat("Model: ", kKnownModels))
      .Check([](const std::string& value) {
        return About(value, CheckModelName(value));
      });
  line.Add("--data", data,
           "Training data: digits[:train=8000,test=2000,seed=0] (psring draws "
           "them), mnist:DIR, cifar10:DIR, "
           "images:DIR[,size=PIXELS][,augment=no] (JPEG and PNG files in "
           "DIR/train/CLASS/ and DIR/val/CLASS/, shown as squares of 224 "
           "pixels; training shows random parts of them unless augment=no), "
           "or "
           "synthetic:3x224x224,classes=1000,train=4096 (random pixels of that "
           "shape, to measure speed)")
      .Check([](const std::string& value) {
        return About(value, CheckDataset(value));
      });
  line.Add("--batch-size", batch_size, "Samples a step, per worker")
      .Range(int64_t{1}, int64_t{1} << 24);
  line.Add("--epochs", epochs, "Passes over the training data")
      .Range(int64_t{1}, int64_t{1} << 30);
  line.Add("--steps", steps, "Number of steps, in place of --epochs")
      .Range(int64_t{1}, int64_t{1} << 40)
      .Excludes("--epochs")
      .Default("");
  line.Add("--sync-batch-norm", sync_batch_norm,
           "ResNets: batch norm takes mean and variance over all workers' "
           "batches. For --mode=ring, or --sync=bsp without --backup-workers; "
           "not for fp16, --local-steps or --slow");
  line.Add("--drop-last", drop_last,
           "Leaves out an epoch's last batch where it is smaller than the "
           "others");
  line.Add("--seed", seed,
           "Seed of the first weights, the order of the data and dropout")
      .Range(int64_t{0}, int64_t{1} << 40);
  line.Add(
          "--bucket-mb", bucket_mb,
          "Size of the buckets in which gradients leave, in MiB; the last ones "
          "of a step may be smaller")
      .Range(0.001, 1024.0);
}

void WorkerFlags::AddOptimizerFlags(CommandLine& line) {
  const char* group = "Optimizer";
  const auto add = [&](const char* name, auto& value, const char* text) {
    return line.Add(name, value, text).Group(group);
  };
  add("--optimizer", optimizer, "Optimizer, as torch.optim defines it")
      .OneOf(OptimizerNames());
  add("--lr", lr, "Learning rate").Range(0.0, 1e9);
  add("--momentum", momentum,
      "Momentum of momentum and nesterov, less than 1; with sgd, selects "
      "momentum")
      .Range(0.0, 1.0);
  add("--weight-decay", weight_decay, "L2 penalty; decoupled in adamw")
      .Range(0.0, 1e9)
      .Default("0; adamw: 0.01");
  add("--beta1", beta1, "beta1 of adam and adamw, less than 1").Range(0.0, 1.0);
  add("--beta2", beta2, "beta2 of adam and adamw, less than 1").Range(0.0, 1.0);
  add("--epsilon", epsilon, "epsilon of adam and adamw, more than 0")
      .Range(0.0, 1e9);
  add("--lr-schedule", lr_schedule, "How the learning rate changes")
      .OneOf({"constant", "step", "cosine"});
  add("--clip-norm", clip_norm,
      "Clips each worker's own gradient to this global norm before it leaves, "
      "in every mode; the mean of all is not clipped. Gradients then leave "
      "after backward, so nothing hides their exchange. 0: no clipping")
      .Range(0.0, 1e9);
  add("--warmup-epochs", warmup_epochs,
      "Epochs over which the rate climbs linearly")
      .Range(0.0, 1e9);
  add("--lr-step-epochs", lr_step_epochs,
      "--lr-schedule=step: epochs between decays")
      .Range(1e-3, 1e9);
  add("--lr-gamma", lr_gamma, "--lr-schedule=step: factor of each decay")
      .Range(0.0, 1.0);
  line.Add("--scale-lr", scale_lr,
           "Multiplies the rate by the number of gradients that an update is "
           "the mean of: the workers less --backup-workers in bsp and in a "
           "ring; one, so nothing changes, with --sync=ssp and async and "
           "with --local-steps")
      .Group(group);
}

}  // namespace psring
