// The flags of `psring worker`.
#ifndef PSRING_WORKER_WORKER_FLAGS_H_
#define PSRING_WORKER_WORKER_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/model/layout.h"
#include "common/optim/sync_policy.h"
#include "common/process/command_line.h"
#include "common/process/process_main.h"
#include "worker/worker.h"

namespace psring {

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
  int64_t checkpoint_every = 0;
  std::string optimizer = "sgd";
  double lr = 0.01;
  double momentum = 0;
  double weight_decay = 0;  // where not given, adamw's is 0.01
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::string lr_schedule = "constant";
  double warmup_epochs = 0;
  double lr_step_epochs = 30;
  double lr_gamma = 0.1;
  bool scale_lr = false;
  int64_t seed = 0;
  bool sync_batch_norm = false;
  bool drop_last = false;
  double bucket_mb = kDefaultBucketBytes >> 20;
  int shard_threads = 0;
  std::string device = "auto";
  std::string precision = "fp32";
  std::vector<std::string> slow;

  // Binds this object's fields and some of `options`: both must outlive the
  // parsing.
  void AddTo(CommandLine& line, WorkerOptions& options);
  // Into `options`, which AddTo has bound with the same `line`.
  // INVALID_ARGUMENT names flags that do not go together.
  absl::Status Fill(const CommandLine& line, WorkerOptions& options) const;

 private:
  void AddDeviceFlags(CommandLine& line, WorkerOptions& options);
  void AddCheckpointFlags(CommandLine& line, WorkerOptions& options);
  void AddConsistencyFlags(CommandLine& line);
  void AddTrainingFlags(CommandLine& line);
  void AddOptimizerFlags(CommandLine& line);
  proto::OptimizerSettings OptimizerOf(const CommandLine& line) const;
  absl::Status CheckOptimizer(const CommandLine& line) const;
  absl::Status CheckCheckpoints(const WorkerOptions& options) const;
  // What of it all workers have in common.
  proto::JobSpec SpecOf(const CommandLine& line, const SyncChoice& choice,
                        const WorkerOptions& options) const;
  // Whether the others leave what the user gave an effect.
  absl::Status CheckUses(const CommandLine& line,
                         const WorkerOptions& options) const;
};

}  // namespace psring

#endif  // PSRING_WORKER_WORKER_FLAGS_H_
