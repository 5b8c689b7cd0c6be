#include "lab/study/run_result.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

absl::Status NothingTold(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the metrics lack ", what));
}

// 0 where it is not known how many there were, as of a script that psring's
// optimizers do not train.
double PerStep(int64_t bytes, const RunResult& result) {
  return result.num_steps == 0 ? 0
                               : static_cast<double>(bytes) /
                                     static_cast<double>(result.num_steps);
}

// A worker's gradient reaches every server, each of which counts it.
void AddHistogram(const StalenessHistogram& more, StalenessHistogram* sum) {
  for (const auto& [rank, counts] : more) {
    std::vector<int64_t>& bins = (*sum)[rank];
    bins.resize(std::max(bins.size(), counts.size()));
    for (size_t i = 0; i < counts.size(); ++i) bins[i] += counts[i];
  }
}

void TakeServer(const ProcessMetrics& server, RunResult* result) {
  const ProcessEnd& end = *server.end;
  result->server_bytes_per_step =
      std::max(result->server_bytes_per_step, PerStep(end.bytes_sent, *result));
  result->server_peak_bytes =
      std::max(result->server_peak_bytes, end.peak_memory_bytes);
  result->staleness_mean = std::max(result->staleness_mean, end.staleness_mean);
  result->staleness_max = std::max(result->staleness_max, end.staleness_max);
  AddHistogram(end.staleness_histogram, &result->staleness_histogram);
}

void TakeWorker(const ProcessMetrics& worker, RunResult* result) {
  const ProcessEnd& end = *worker.end;
  result->seconds = std::max(result->seconds, end.seconds);
  result->worker_bytes_per_step =
      std::max(result->worker_bytes_per_step, PerStep(end.bytes_sent, *result));
  result->worker_peak_bytes =
      std::max(result->worker_peak_bytes, end.peak_memory_bytes);
  result->worker_peak_gpu_bytes = std::max(
      result->worker_peak_gpu_bytes, end.peak_gpu_memory_bytes.value_or(0));
  result->on_gpu = result->on_gpu || worker.on_gpu;
  result->data = worker.data;
  if (end.step_time) {
    result->step_times[static_cast<int>(worker.rank)] = *end.step_time;
  }
}

// That all workers together have trained on; of a script, which does not say,
// what so many steps of its batches are, or steps themselves.
double Samples(const std::vector<ProcessMetrics>& all, int64_t num_steps) {
  double samples = 0;
  int64_t batch = 1;
  for (const ProcessMetrics& process : all) {
    if (process.role != "worker") continue;
    batch = std::max(batch, process.global_batch);
    samples += static_cast<double>(process.end->samples.value_or(0));
  }
  if (samples > 0) return samples;
  return static_cast<double>(num_steps) * static_cast<double>(batch);
}

// By what its last evaluation told: the accuracy or, without one, the loss.
bool HasDiverged(const ProcessMetrics& worker0) {
  return worker0.infinite_accuracy ||
         (worker0.infinite_loss &&
          std::isnan(worker0.epochs.back().test_accuracy));
}

// What a script does before its first step is no training.
void CountFromFirstStep(const ProcessMetrics& worker0, RunResult* result) {
  if (worker0.progress.empty()) return;
  const double start = worker0.progress.front().seconds;
  for (StepSample& sample : result->steps) {
    sample.seconds = std::max(0.0, sample.seconds - start);
  }
  for (EpochSample& sample : result->epochs) {
    sample.seconds = std::max(0.0, sample.seconds - start);
  }
}

const ProcessMetrics* FindWorkerZero(const std::vector<ProcessMetrics>& all) {
  for (const ProcessMetrics& process : all) {
    if (process.role == "worker" && process.rank == 0) return &process;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<RunResult> Summarize(const Point& point,
                                    const std::vector<ProcessMetrics>& all) {
  const ProcessMetrics* worker0 = FindWorkerZero(all);
  if (worker0 == nullptr) {
    return NothingTold("worker 0. A script's appear once it has called init()");
  }
  if (worker0->epochs.empty()) {
    return NothingTold(
        "worker 0's epochs. A script tells of them with "
        "psring.log(accuracy=...) or psring.log(test_loss=...) on rank 0, or "
        "prints them for --metric=REGEX");
  }
  for (const ProcessMetrics& process : all) {
    if (process.end) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the metrics lack ", process.role, " ", process.rank,
                     "'s end: it was stopped, or could not write them"));
  }
  if (HasDiverged(*worker0)) {
    return absl::OutOfRangeError(
        absl::StrCat("training has diverged: what the evaluation after step ",
                     worker0->epochs.back().step,
                     " told is no finite number. A smaller learning rate may "
                     "help"));
  }
  RunResult result;
  result.point = point;
  result.num_parameters = worker0->num_parameters;
  result.num_steps = worker0->end->step;
  // Of the last evaluation that tells it.
  result.test_accuracy = result.test_loss = std::nan("");
  for (const EpochSample& epoch : worker0->epochs) {
    if (!std::isnan(epoch.test_accuracy)) {
      result.test_accuracy = epoch.test_accuracy;
    }
    if (!std::isnan(epoch.test_loss)) result.test_loss = epoch.test_loss;
  }
  if (worker0->infinite_loss) result.test_loss = std::nan("");
  result.steps = worker0->steps;
  result.epochs = worker0->epochs;
  CountFromFirstStep(*worker0, &result);
  result.weights_crc32 = worker0->end->weights_crc32;
  for (const ProcessMetrics& process : all) {
    (process.role == "ps" ? TakeServer : TakeWorker)(process, &result);
  }
  result.counts_steps = worker0->global_batch == 0;
  result.images_per_second =
      result.num_steps > 0 && result.seconds > 0
          ? Samples(all, result.num_steps) / result.seconds
          : std::nan("");
  return result;
}

void UseOneUnit(std::vector<RunResult>& runs) {
  const bool percent = std::any_of(
      runs.begin(), runs.end(),
      [](const RunResult& run) { return run.printed_percent.value_or(false); });
  for (RunResult& run : runs) {
    if (!percent || run.printed_percent.value_or(true)) continue;
    run.printed_percent = true;
    run.test_accuracy /= 100;
    for (EpochSample& epoch : run.epochs) epoch.test_accuracy /= 100;
  }
}

double StepSeconds(const RunResult& run) {
  return run.seconds / static_cast<double>(std::max<int64_t>(1, run.num_steps));
}

}  // namespace psring
