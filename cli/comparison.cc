#include "cli/comparison.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

absl::Status Missing(const ModeSpec& spec, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat(spec.name, ": the metrics lack ", what));
}

void TakeServer(const ProcessMetrics& server, ModeResult* result) {
  const ProcessEnd& end = *server.end;
  const double steps =
      static_cast<double>(std::max<int64_t>(1, result->num_steps));
  result->server_bytes_per_step =
      std::max(result->server_bytes_per_step, end.bytes_sent / steps);
  result->server_peak_bytes =
      std::max(result->server_peak_bytes, end.peak_memory_bytes);
  result->staleness_mean = std::max(result->staleness_mean, end.staleness_mean);
  result->staleness_max = std::max(result->staleness_max, end.staleness_max);
}

void TakeWorker(const ProcessMetrics& worker, ModeResult* result) {
  const ProcessEnd& end = *worker.end;
  const double steps =
      static_cast<double>(std::max<int64_t>(1, result->num_steps));
  result->seconds = std::max(result->seconds, end.seconds);
  result->worker_bytes_per_step =
      std::max(result->worker_bytes_per_step, end.bytes_sent / steps);
  result->worker_peak_bytes =
      std::max(result->worker_peak_bytes, end.peak_memory_bytes);
}

const ProcessMetrics* FindWorkerZero(const std::vector<ProcessMetrics>& all) {
  for (const ProcessMetrics& process : all) {
    if (process.role == "worker" && process.rank == 0) return &process;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<ModeResult> Summarize(const ModeSpec& spec,
                                     const std::vector<ProcessMetrics>& all) {
  const ProcessMetrics* worker0 = FindWorkerZero(all);
  if (worker0 == nullptr) return Missing(spec, "worker 0");
  if (worker0->epochs.empty()) return Missing(spec, "worker 0's epochs");
  for (const ProcessMetrics& process : all) {
    if (process.end) continue;
    return Missing(spec, absl::StrCat(process.role, " ", process.rank,
                                      "'s end: it has not ended in peace"));
  }
  ModeResult result;
  result.spec = spec;
  result.num_parameters = worker0->num_parameters;
  result.num_steps = worker0->end->step;
  result.test_accuracy = worker0->epochs.back().test_accuracy;
  result.test_loss = worker0->epochs.back().test_loss;
  result.steps = worker0->steps;
  result.epochs = worker0->epochs;
  for (const ProcessMetrics& process : all) {
    (process.role == "ps" ? TakeServer : TakeWorker)(process, &result);
  }
  if (result.seconds > 0) {
    result.images_per_second = static_cast<double>(result.num_steps) *
                               static_cast<double>(worker0->global_batch) /
                               result.seconds;
  }
  return result;
}

Comparison Compare(std::vector<ModeResult> modes) {
  Comparison comparison;
  comparison.modes = std::move(modes);
  comparison.target_accuracy = 1;
  for (const ModeResult& mode : comparison.modes) {
    comparison.target_accuracy =
        std::min(comparison.target_accuracy, mode.test_accuracy);
  }
  return comparison;
}

std::optional<double> SecondsToAccuracy(const ModeResult& mode, double target) {
  for (const EpochSample& epoch : mode.epochs) {
    if (epoch.test_accuracy >= target) return epoch.seconds;
  }
  return std::nullopt;
}

const ModeResult* FindMode(const Comparison& comparison,
                           const std::string& name) {
  for (const ModeResult& mode : comparison.modes) {
    if (mode.spec.name == name) return &mode;
  }
  return nullptr;
}

}  // namespace psring
