#include "lab/bench/train_bench.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/counted.h"
#include "common/trace/metrics_reader.h"
#include "lab/bench/peers/ddp_train.h"
#include "lab/bench/peers/resnet.h"
#include "lab/host/job.h"
#include "lab/host/temp_dir.h"
#include "lab/host/text_file.h"
#include "lab/host/units.h"

namespace psring {
namespace {

constexpr char kLearningRate[] = "0.01";
constexpr int64_t kMostSteps = 1'000'000;

// What a data set's images are like; DDP trains on random ones of that kind.
struct Images {
  std::string shape = "1x28x28";  // mnist, digits
  std::string classes = "10";
};

// Of "DIR,size=64,augment=no"; the workers say what is wrong with it.
Images ImagesInFolder(absl::string_view data) {
  std::string side = "224";
  size_t comma = data.rfind(',');
  while (comma != data.npos && absl::StrContains(data.substr(comma), '=')) {
    absl::string_view part = data.substr(comma + 1);
    if (absl::ConsumePrefix(&part, "size=")) side = std::string(part);
    data = data.substr(0, comma);
    comma = data.rfind(',');
  }
  int classes = 0;
  std::error_code error;
  const std::filesystem::path train =
      std::filesystem::path(std::string(data)) / "train";
  for (const auto& entry : std::filesystem::directory_iterator(train, error)) {
    const bool hidden = absl::StartsWith(entry.path().filename().string(), ".");
    if (!hidden && entry.is_directory(error)) ++classes;
  }
  return {absl::StrCat("3x", side, "x", side), absl::StrCat(classes)};
}

Images ImagesOf(absl::string_view data) {
  if (absl::StartsWith(data, "cifar10")) return {"3x32x32", "10"};
  if (absl::ConsumePrefix(&data, "images:")) return ImagesInFolder(data);
  if (!absl::ConsumePrefix(&data, "synthetic:")) return {};
  const std::vector<std::string> parts = absl::StrSplit(data, ',');
  Images images = {parts[0], "10"};
  for (absl::string_view part : parts) {
    if (absl::ConsumePrefix(&part, "classes="))
      images.classes = std::string(part);
  }
  return images;
}

// With how many steps the training would take more than a second, in thousands.
int64_t StepsOfASecond(const ProcessMetrics& worker, int64_t steps) {
  if (worker.steps.empty() || worker.steps.back().seconds <= 0) {
    return 10 * steps;
  }
  const StepSample& last = worker.steps.back();
  const auto a_second =
      static_cast<int64_t>(static_cast<double>(last.step) / last.seconds);
  return (a_second / 1000 + 1) * 1000;
}

// The rate over the steps after the warm-up, which metrics report in intervals:
// from the first report at or after it to the last. Nothing: the training was
// too short for one.
std::optional<double> RateAfter(const ProcessMetrics& worker, int64_t warmup) {
  const auto first = std::find_if(
      worker.steps.begin(), worker.steps.end(),
      [&](const StepSample& sample) { return sample.step >= warmup; });
  if (first == worker.steps.end() || first->step >= worker.steps.back().step) {
    return std::nullopt;
  }
  const StepSample& last = worker.steps.back();
  return static_cast<double>((last.step - first->step) * worker.global_batch) /
         (last.seconds - first->seconds);
}

std::vector<Training> Plan(const TrainOptions& options,
                           const std::string& model) {
  std::vector<Training> plan;
  for (const std::string& precision : options.precisions) {
    for (const int workers : options.workers) {
      for (const std::string& mode : options.modes) {
        if (mode == "ddp" && !options.python) continue;
        plan.push_back({model, mode, workers, {}, precision});
      }
    }
  }
  return plan;
}

class TrainBench {
 public:
  TrainBench(const Stage& stage, const TrainOptions& options)
      : stage_(stage), options_(options), steps_(options.steps) {}

  // All contenders with a model. `trainings` has what was measured, after an
  // error, too.
  absl::Status RunAll(const std::string& model,
                      std::vector<Training>* trainings) {
    absl::Status status = RunAllOnce(model, trainings);
    // All anew: as many steps for every contender.
    while (!status.ok() && Lengthen()) {
      if (options_.on_longer) options_.on_longer(status, num_done_);
      status = RunAllOnce(model, trainings);
    }
    return status;
  }

 private:
  // Whether the last training was too short; from now on all take more steps.
  bool Lengthen() {
    if (longer_ <= steps_ || longer_ > kMostSteps) return false;
    steps_ = std::exchange(longer_, 0);
    return true;
  }

  absl::Status RunAllOnce(const std::string& model,
                          std::vector<Training>* trainings) {
    *trainings = Plan(options_, model);
    num_done_ = 0;
    for (int i = 0; i < options_.repetitions; ++i) {
      for (Training& training : *trainings) {
        if (absl::Status s = RunUnlessLeftOut(&training); !s.ok()) return s;
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunUnlessLeftOut(Training* training) {
    const bool is_ddp = training->contender == "ddp";
    if (is_ddp && without_ddp_) return absl::OkStatus();
    if (options_.on_start) options_.on_start(*training);
    const absl::Status status = Run(training);
    if (!status.ok() && is_ddp && stage_.cancellation.status().ok() &&
        options_.leaves_out_ddp && options_.leaves_out_ddp(status)) {
      without_ddp_ = true;
      return absl::OkStatus();
    }
    if (!status.ok()) return status;
    ++num_done_;
    if (options_.on_training) options_.on_training(*training);
    return absl::OkStatus();
  }

  // One repetition more.
  absl::Status Run(Training* training) {
    auto dir = TempDir::Create();
    if (!dir.ok()) return dir.status();
    const absl::Status status = training->contender == "ddp"
                                    ? RunDdp(training, dir->path())
                                    : RunPsring(training, dir->path());
    if (status.ok()) return status;
    return absl::Status(
        status.code(),
        absl::StrCat("train ", training->model, ", ", training->precision,
                     ", on ", Counted(training->workers, "worker"), ", ",
                     training->contender, ": ", std::string(status.message())));
  }

  int64_t AllSteps() const { return options_.warmup + steps_; }

  absl::Status RunPsring(Training* training, const std::string& directory) {
    Job job;
    job.mode = training->contender == "ring" ? "ring" : "ps";
    job.servers = options_.servers;
    job.workers = training->workers;
    job.threads_per_worker = 1;
    job.security = stage_.security;
    job.ps_binary = stage_.ps_binary;
    job.worker_binary = stage_.worker_binary;
    job.metrics_dir = directory;
    job.worker_flags = {
        absl::StrCat("--model=", training->model),
        absl::StrCat("--precision=", training->precision),
        absl::StrCat("--data=", options_.data),
        absl::StrCat("--batch-size=", options_.batch_size),
        absl::StrCat("--steps=", AllSteps()),
        absl::StrCat("--lr=", kLearningRate),
        absl::StrCat("--device=", options_.device),
        "--drop-last",  // DDP's batches are whole, too
        "--log-level=warn",
    };
    if (training->precision != "fp32") {
      job.worker_flags.push_back("--channels-last");
    }
    const absl::Status status = RunToEnd(stage_, [&](Supervisor& supervisor) {
      return StartJob(job, supervisor).status();
    });
    if (!status.ok()) return status;
    return TakeMetrics(directory, training);
  }

  absl::Status TakeMetrics(const std::string& directory, Training* training) {
    auto all = ReadAllMetrics(directory);
    if (!all.ok()) return all.status();
    bool found = false;
    for (const ProcessMetrics& process : *all) {
      if (process.role != "worker" || !process.end.has_value()) continue;
      training->peak_memory_bytes =
          std::max(training->peak_memory_bytes,
                   process.end->peak_gpu_memory_bytes.value_or(
                       process.end->peak_memory_bytes));
      if (process.rank != 0) continue;
      found = true;
      const auto rate = RateAfter(process, options_.warmup);
      if (!rate.has_value()) {
        longer_ = StepsOfASecond(process, steps_);
        return absl::FailedPreconditionError(
            absl::StrCat("the training was too short for a rate: give it more "
                         "--steps, such as ",
                         longer_));
      }
      training->images_per_second.push_back(*rate);
      // Random labels cannot be learned.
      if (!process.epochs.empty() &&
          !absl::StartsWith(options_.data, "synthetic")) {
        training->accuracy = process.epochs.back().test_accuracy;
      }
    }
    if (found) return absl::OkStatus();
    return absl::DataLossError("worker 0 has written no metrics");
  }

  absl::Status RunDdp(Training* training, const std::string& directory) {
    const std::string script = absl::StrCat(directory, "/ddp_train.py");
    absl::Status written = WriteTextFile(script, kDdpTrain);
    written.Update(WriteTextFile(directory + "/resnet.py", kResNet));
    if (!written.ok()) return written;
    const Images images = ImagesOf(options_.data);
    const absl::Status status = RunToEnd(stage_, [&](Supervisor& supervisor) {
      for (int rank = 0; rank < training->workers; ++rank) {
        absl::Status s = supervisor.Start(
            {absl::StrCat("ddp rank ", rank),
             {options_.python->python, script, absl::StrCat("--rank=", rank),
              absl::StrCat("--ranks=", training->workers),
              absl::StrCat("--steps=", steps_),
              absl::StrCat("--warmup=", options_.warmup),
              absl::StrCat("--batch=", options_.batch_size),
              absl::StrCat("--shape=", images.shape),
              absl::StrCat("--classes=", images.classes),
              absl::StrCat("--model=", training->model),
              absl::StrCat("--precision=", training->precision),
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
    return TakeTimes(directory, training);
  }

  // The rate: all images over the slowest rank's time.
  static absl::Status TakeTimes(const std::string& directory,
                                Training* training) {
    double images = 0;
    double seconds = 0;
    for (int rank = 0; rank < training->workers; ++rank) {
      std::ifstream file(absl::StrCat(directory, "/rank-", rank, ".json"));
      const auto json = nlohmann::json::parse(file, nullptr, false);
      if (!json.is_object()) {
        return absl::DataLossError(
            absl::StrCat("DDP's rank ", rank, " has written no times"));
      }
      images += json.value("images", 0.0);
      seconds = std::max(seconds, json.value("seconds", 0.0));
      training->peak_memory_bytes =
          std::max(training->peak_memory_bytes,
                   json.value("peak_memory_bytes", int64_t{0}));
    }
    training->images_per_second.push_back(images / seconds);
    return absl::OkStatus();
  }

  const Stage& stage_;
  const TrainOptions& options_;
  int64_t steps_ = 0;   // that are timed
  int64_t longer_ = 0;  // what a training that was too short wants
  int num_done_ = 0;    // of this model with so many steps
  bool without_ddp_ = false;
};

}  // namespace

int NumTrainings(const TrainOptions& options) {
  size_t num_trainings = 0;
  for (const std::string& model : options.models) {
    num_trainings += Plan(options, model).size();
  }
  return static_cast<int>(num_trainings) * options.repetitions;
}

absl::Status RunTrain(const Stage& stage, const TrainOptions& options,
                      std::vector<Training>* all) {
  TrainBench bench(stage, options);
  for (const std::string& model : options.models) {
    std::vector<Training> trainings;
    const absl::Status status = bench.RunAll(model, &trainings);
    absl::c_copy_if(trainings, std::back_inserter(*all), [](const Training& t) {
      return !t.images_per_second.empty();
    });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace psring
