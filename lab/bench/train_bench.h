// Whole training, psring's worker against DistributedDataParallel, over Gloo on
// CPUs and over NCCL on GPUs.
#ifndef PSRING_LAB_BENCH_TRAIN_BENCH_H_
#define PSRING_LAB_BENCH_TRAIN_BENCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/bench/contender.h"
#include "lab/bench/peers.h"
#include "lab/bench/results.h"

namespace psring {

struct TrainOptions {
  std::vector<std::string> models;
  std::vector<std::string> modes;       // of "ring", "ps-bsp", "ddp"
  std::vector<std::string> precisions;  // of worker's --precision
  std::string data;                     // worker's --data
  std::vector<int> workers;
  int servers = 1;    // of ps-bsp
  int64_t steps = 0;  // that are timed, or more where these take no time
  int64_t warmup = 20;
  int repetitions = 3;
  int batch_size = 64;               // of each worker
  std::string device = "cpu";        // of all contenders; or "cuda"
  std::optional<GlooPython> python;  // nothing: without DDP
  // Whether to continue without DDP, which has failed. Empty: no.
  std::function<bool(const absl::Status& status)> leaves_out_ddp;
  // Called where a training was too short for a rate: all of its model take
  // more steps from now on, and so many are measured once more.
  std::function<void(const absl::Status& why, int num_again)> on_longer;
  // What is measured next, and what was measured, for people who wait.
  std::function<void(const Training&)> on_start, on_training;
};

// How many trainings RunTrain measures.
int NumTrainings(const TrainOptions& options);

// Every contender trains with one compute thread a worker, repetition by
// repetition in turn. Adds to `all` what it has measured, after an error, too.
absl::Status RunTrain(const Stage& stage, const TrainOptions& options,
                      std::vector<Training>* all);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_TRAIN_BENCH_H_
