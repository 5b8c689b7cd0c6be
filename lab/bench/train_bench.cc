#include "lab/bench/train_bench.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/trace/metrics_reader.h"
#include "lab/bench/peers/ddp_train.h"
#include "lab/host/job.h"
#include "lab/host/temp_dir.h"

namespace psring {
namespace {

constexpr int kTrainImages = 8192;
constexpr char kLearningRate[] = "0.01";

// The rate over the steps after the warm-up, which metrics report in intervals:
// from the first report at or after it to the last.
absl::StatusOr<double> RateAfter(const ProcessMetrics& worker, int64_t warmup) {
  const auto first = std::find_if(
      worker.steps.begin(), worker.steps.end(),
      [&](const StepSample& sample) { return sample.step >= warmup; });
  if (first == worker.steps.end() || first->step >= worker.steps.back().step) {
    return absl::FailedPreconditionError(
        "the training was too short for a rate: give it more --steps");
  }
  const StepSample& last = worker.steps.back();
  return static_cast<double>((last.step - first->step) * worker.global_batch) /
         (last.seconds - first->seconds);
}

class TrainBench {
 public:
  TrainBench(const Stage& stage, const TrainOptions& options)
      : stage_(stage), options_(options) {}

  absl::StatusOr<double> Run(const Training& training) {
    auto dir = TempDir::Create();
    if (!dir.ok()) return dir.status();
    auto rate = training.contender == "ddp" ? RunDdp(training, dir->path())
                                            : RunPsring(training, dir->path());
    if (rate.ok()) return rate;
    return absl::Status(
        rate.status().code(),
        absl::StrCat("train ", training.model, " on ", training.workers,
                     " workers, ", training.contender, ": ",
                     std::string(rate.status().message())));
  }

 private:
  int64_t AllSteps() const { return options_.warmup + options_.steps; }

  absl::StatusOr<double> RunPsring(const Training& training,
                                   const std::string& directory) {
    Job job;
    job.mode = training.contender == "ring" ? "ring" : "ps";
    job.servers = options_.servers;
    job.workers = training.workers;
    job.threads_per_worker = 1;
    job.security = stage_.security;
    job.ps_binary = stage_.ps_binary;
    job.worker_binary = stage_.worker_binary;
    job.metrics_dir = directory;
    job.worker_flags = {
        absl::StrCat("--model=", training.model),
        absl::StrCat("--data=digits:train=", kTrainImages, ",test=64"),
        absl::StrCat("--batch-size=", options_.batch_size),
        absl::StrCat("--steps=", AllSteps()),
        absl::StrCat("--lr=", kLearningRate),
        absl::StrCat("--device=", options_.device),
        "--log-level=warn",
    };
    const absl::Status status = RunToEnd(stage_, [&](Supervisor& supervisor) {
      return StartJob(job, supervisor).status();
    });
    if (!status.ok()) return status;
    auto all = ReadAllMetrics(directory);
    if (!all.ok()) return all.status();
    for (const ProcessMetrics& process : *all) {
      if (process.role == "worker" && process.rank == 0) {
        return RateAfter(process, options_.warmup);
      }
    }
    return absl::DataLossError("worker 0 has written no metrics");
  }

  absl::StatusOr<double> RunDdp(const Training& training,
                                const std::string& directory) {
    const std::string script = absl::StrCat(directory, "/ddp_train.py");
    std::ofstream(script) << kDdpTrain;
    const absl::Status status = RunToEnd(stage_, [&](Supervisor& supervisor) {
      for (int rank = 0; rank < training.workers; ++rank) {
        absl::Status s = supervisor.Start(
            {absl::StrCat("ddp rank ", rank),
             {options_.python->python, script, absl::StrCat("--rank=", rank),
              absl::StrCat("--ranks=", training.workers),
              absl::StrCat("--steps=", options_.steps),
              absl::StrCat("--warmup=", options_.warmup),
              absl::StrCat("--batch=", options_.batch_size),
              absl::StrCat("--images=", kTrainImages),
              absl::StrCat("--model=", training.model),
              absl::StrCat("--lr=", kLearningRate),
              absl::StrCat("--device=", options_.device),
              absl::StrCat("--out=", directory),
              absl::StrCat("--store=", directory, "/store"),
              "--interface=lo"}});
        if (!s.ok()) return s;
      }
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    return DdpRate(training.workers, directory);
  }

  // All images over the slowest rank's time.
  static absl::StatusOr<double> DdpRate(int ranks,
                                        const std::string& directory) {
    double images = 0;
    double seconds = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      std::ifstream file(absl::StrCat(directory, "/rank-", rank, ".json"));
      const auto json = nlohmann::json::parse(file, nullptr, false);
      if (!json.is_object()) {
        return absl::DataLossError(
            absl::StrCat("DDP's rank ", rank, " has written no times"));
      }
      images += json.value("images", 0.0);
      seconds = std::max(seconds, json.value("seconds", 0.0));
    }
    return images / seconds;
  }

  const Stage& stage_;
  const TrainOptions& options_;
};

std::vector<Training> Plan(const TrainOptions& options,
                           const std::string& model) {
  std::vector<Training> plan;
  for (const int workers : options.workers) {
    for (const char* contender : {"ring", "ps-bsp", "ddp"}) {
      if (std::string(contender) == "ddp" && !options.python) continue;
      plan.push_back({model, contender, workers, {}});
    }
  }
  return plan;
}

}  // namespace

int NumTrainings(const TrainOptions& options) {
  size_t num_trainings = 0;
  for (const std::string& model : options.models) {
    num_trainings += Plan(options, model).size();
  }
  return static_cast<int>(num_trainings) * options.repetitions;
}

absl::StatusOr<std::vector<Training>> RunTrain(const Stage& stage,
                                               const TrainOptions& options) {
  TrainBench bench(stage, options);
  std::vector<Training> all;
  for (const std::string& model : options.models) {
    std::vector<Training> trainings = Plan(options, model);
    for (int i = 0; i < options.repetitions; ++i) {
      for (Training& training : trainings) {
        if (options.on_start) options.on_start(training);
        const auto rate = bench.Run(training);
        if (!rate.ok()) return rate.status();
        training.images_per_second.push_back(*rate);
        if (options.on_training) options.on_training(training);
      }
    }
    all.insert(all.end(), trainings.begin(), trainings.end());
  }
  return all;
}

}  // namespace psring
