#include "lab/bench/gpu_check.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/trace/metrics_reader.h"
#include "gpu/device_check.h"
#include "lab/bench/contender.h"
#include "lab/host/gpu_info.h"
#include "lab/host/job.h"
#include "lab/host/statistics.h"
#include "lab/host/temp_dir.h"
#include "lab/host/units.h"
#include "ring/nccl/nccl_api.h"

namespace psring {
namespace {

// The last of the updates alone changes the loss by more.
constexpr double kLossTolerance = 1e-3;
// Of convolutions, whose sums differ more and whose updates change it by more.
constexpr double kConvolutionTolerance = 5e-3;
// Of models with dropout, whose chances are others on GPUs, or batch norm.
constexpr double kLooseTolerance = 0.1;

double ToleranceOf(const std::string& model) {
  if (absl::StartsWith(model, "mlp")) return kLossTolerance;
  return model == "lenet:dropout=0" ? kConvolutionTolerance : kLooseTolerance;
}

class Checker {
 public:
  Checker(const GpuCheckOptions& options, const Cancellation& cancellation)
      : options_(options),
        cancellation_(cancellation),
        deadline_(Now() + options.timeout),
        stage_{.cancellation = cancellation,
               .ps_binary = options.binaries.ps,
               .worker_binary = options.binaries.worker,
               .rank_binary = options.binaries.rank,
               .timeout = options.timeout} {}

  absl::Status Run(const std::vector<DeviceInfo>& all) {
    num_gpus_ = static_cast<int>(all.size());
    most_ranks_ = MostRanks(all);
    if (most_ranks_ < 2) {
      Say("GPU 0 takes one process at a time (compute mode EXCLUSIVE_PROCESS): "
          "what takes two is left out");
    }
    if (absl::Status s = CheckDevices(all); !s.ok()) return s;
    if (absl::Status s = CheckNccl(); !s.ok()) return s;
    return CheckTrainings();
  }

 private:
  static void Say(const std::string& what) { std::cout << what << std::endl; }

  absl::Status CheckDevices(const std::vector<DeviceInfo>& all) {
    if (const auto cuda = FindCuda()) {
      Say(absl::StrCat("driver: for CUDA ", cuda->driver_version));
    }
    for (const DeviceInfo& info : all) {
      Say(absl::StrFormat("GPU %d: %s, %.1f GiB, compute capability %s, bus %s",
                          info.index, info.name,
                          static_cast<double>(info.memory_bytes) / (1 << 30),
                          info.compute_capability, info.bus_id));
      auto device = OpenCudaDevice(info.index);
      if (!device.ok()) return device.status();
      devices_.push_back(*std::move(device));
      Device& gpu = *devices_.back();
      absl::Status status =
          CheckOptimizers(gpu, 1 << 20, deadline_, cancellation_);
      if (!status.ok()) return status;
      Say("  optimizers: as the host's, within 1 ulp");
      const auto rates =
          MeasureCopies(gpu, options_.size_bytes, deadline_, cancellation_);
      if (!rates.ok()) return rates.status();
      Say(absl::StrCat("  copies of ", FormatSize(options_.size_bytes), ": ",
                       FormatBandwidth(rates->to_device), " to it, ",
                       FormatBandwidth(rates->to_host), " from it, ",
                       FormatBandwidth(rates->both), " both ways at once"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckNccl() {
    const auto api = LoadNccl();
    if (!api.ok()) return api.status();
    int version = 0;
    api->version(&version);
    Say(absl::StrCat("NCCL ", NcclVersionName(version)));
    double peer_copy = 0;  // bytes a second
    if (num_gpus_ > 1) {
      const auto copy =
          MeasurePeerCopy(*devices_[0], *devices_[1], options_.size_bytes,
                          deadline_, cancellation_);
      if (!copy.ok()) return copy.status();
      peer_copy = copy->rate;
      Say(absl::StrCat("GPU 0 -> GPU 1: ", FormatBandwidth(peer_copy),
                       copy->direct ? ", direct" : ", through the host"));
    }
    devices_.clear();
    // From here on they are the processes', also where a GPU takes one alone.
    for (int gpu = 0; gpu < num_gpus_; ++gpu) ReleaseCudaDevice(gpu);
    for (int ranks = 1; ranks <= most_ranks_; ++ranks) {
      if (absl::Status s = CheckAllReduce(ranks, peer_copy); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  absl::Status CheckAllReduce(int ranks, double peer_copy) {
    const bool shared = ranks > num_gpus_;
    const auto contender = MakePsring(stage_, "gpu-allreduce");
    const auto samples = contender->Run(
        {.ranks = ranks,
         .size_bytes = shared ? std::min<int64_t>(options_.size_bytes, 1 << 22)
                              : options_.size_bytes,
         .iterations = 20});
    if (!samples.ok()) return samples.status();
    const std::string what =
        absl::StrCat("allreduce, ", ranks, ranks == 1 ? " GPU: " : " GPUs: ");
    if (shared) {
      Say("allreduce, 2 ranks on 1 GPU: correct (not timed: they take turns)");
      return absl::OkStatus();
    }
    const double seconds = Median(samples->seconds);
    const double busbw = static_cast<double>(options_.size_bytes) / seconds *
                         AllReduceLinkLoad(ranks);
    Say(absl::StrCat(
        what, "correct, ", FormatTime(seconds),
        ranks == 1 ? ""
                   : absl::StrCat(", busbw ", FormatBandwidth(busbw), ", ",
                                  absl::StrFormat("%.2f", busbw / peer_copy),
                                  " of the link")));
    return absl::OkStatus();
  }

  // What is left of the whole check's time.
  int64_t StepTimeoutS() const {
    const double left = absl::ToDoubleSeconds(deadline_ - Now());
    return static_cast<int64_t>(std::clamp(left, 60.0, 86400.0));
  }

  // The loss on the test data after the last step.
  absl::StatusOr<double> TrainLoss(const std::string& mode, int workers,
                                   const std::string& device) {
    auto dir = TempDir::Create();
    if (!dir.ok()) return dir.status();
    Job job;
    job.mode = mode;
    job.workers = workers;
    job.ps_binary = stage_.ps_binary;
    job.worker_binary = stage_.worker_binary;
    job.metrics_dir = dir->path();
    job.worker_flags = {"--model=" + options_.model, "--data=" + options_.data,
                        absl::StrCat("--steps=", options_.steps),
                        absl::StrCat("--batch-size=", kGpuCheckBatch),
                        absl::StrCat("--lr=", kGpuCheckRate),
                        "--device=" + device, "--log-level=warn",
                        // Under compute-sanitizer all is slow.
                        absl::StrCat("--step-timeout=", StepTimeoutS())};
    if (device == "cuda" && workers > num_gpus_) {
      job.worker_flags.push_back("--allow-shared-gpu");
    }
    const absl::Status status = RunToEnd(stage_, [&](Supervisor& supervisor) {
      return StartJob(job, supervisor).status();
    });
    if (!status.ok()) return status;
    const auto all = ReadAllMetrics(dir->path());
    if (!all.ok()) return all.status();
    for (const ProcessMetrics& process : *all) {
      if (process.role == "worker" && process.rank == 0 &&
          !process.epochs.empty()) {
        return process.epochs.back().test_loss;
      }
    }
    return absl::DataLossError("worker 0 has written no metrics");
  }

  absl::Status CheckTrainings() {
    for (int workers = 1; workers <= std::min(most_ranks_, 2); ++workers) {
      const auto wanted = TrainLoss("ring", workers, "cpu");
      if (!wanted.ok()) return wanted.status();
      for (const char* mode : {"ring", "ps"}) {
        const auto found = TrainLoss(mode, workers, "cuda");
        if (!found.ok()) return found.status();
        const std::string what = absl::StrFormat(
            "%s of %s, %d %s: loss %.5f, on CPUs %.5f", mode, options_.model,
            workers, workers == 1 ? "worker" : "workers", *found, *wanted);
        if (!LossesAgree(options_.model, *found, *wanted)) {
          return absl::DataLossError(
              absl::StrCat(what, ": more than ",
                           ToleranceOf(options_.model) * 100, "% apart"));
        }
        Say(what);
      }
    }
    return absl::OkStatus();
  }

  const GpuCheckOptions& options_;
  const Cancellation& cancellation_;
  const Time deadline_;
  const Stage stage_;
  int num_gpus_ = 0;
  int most_ranks_ = 0;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace

bool LossesAgree(const std::string& model, double found, double wanted) {
  // False, too, where one is no number.
  return std::abs(found - wanted) <= ToleranceOf(model) * wanted;
}

int MostRanks(const std::vector<DeviceInfo>& gpus) {
  const auto num_gpus = static_cast<int>(gpus.size());
  if (num_gpus != 1 || gpus[0].takes_one_process) return num_gpus;
  return 2;
}

absl::Status CheckGpus(const std::vector<DeviceInfo>& gpus,
                       const GpuCheckOptions& options,
                       const Cancellation& cancellation) {
  return Checker(options, cancellation).Run(gpus);
}

}  // namespace psring
