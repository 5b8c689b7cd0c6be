#include "common/trace/metrics_reader.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/trace/whole_number.h"

namespace psring {
namespace {

using nlohmann::json;

// JSON has no NaN: it is written as null.
double Number(const json& event, const char* key) {
  const json& value = event.at(key);
  return value.is_null() ? std::nan("") : value.get<double>();
}

// Every process writes a start; only workers know of steps and batches.
void TakeStart(const json& event, ProcessMetrics* metrics) {
  metrics->role = event.at("role").get<std::string>();
  metrics->rank = WholeOf(event.at("rank"));
  metrics->started_s = event.value("time", 0.0);
  metrics->num_parameters = WholeOrZero(event, "num_parameters");
  metrics->total_steps = WholeOrZero(event, "total_steps");
  metrics->steps_per_epoch = WholeOrZero(event, "steps_per_epoch");
  metrics->global_batch = WholeOrZero(event, "global_batch");
  metrics->on_gpu = event.value("device", "") == "cuda";
  metrics->data = event.value("data", "");
}

StepSample ToStep(const json& event) {
  return {WholeOf(event.at("step")), Number(event, "seconds"),
          Number(event, "loss"), Number(event, "images_per_second")};
}

EpochSample ToEpoch(const json& event) {
  return {WholeOf(event.at("epoch")),        WholeOf(event.at("step")),
          Number(event, "seconds"),          Number(event, "train_loss"),
          Number(event, "test_loss"),        Number(event, "test_accuracy"),
          Number(event, "images_per_second")};
}

StalenessHistogram ToHistogram(const json& event) {
  StalenessHistogram histogram;
  const auto found = event.find("staleness_histogram");
  if (found == event.end()) return histogram;
  for (const auto& [rank, counts] : found->items()) {
    int number = 0;
    if (absl::SimpleAtoi(rank, &number)) {
      for (const json& count : counts) {
        histogram[number].push_back(WholeOf(count));
      }
    }
  }
  return histogram;
}

std::optional<StepTime> ToStepTime(const json& event) {
  const auto found = event.find("step_seconds");
  if (found == event.end()) return std::nullopt;
  return StepTime{Number(*found, "compute"), Number(*found, "exposed"),
                  Number(*found, "wait"),
                  found->at("busy").get<std::vector<double>>()};
}

std::optional<uint32_t> ToCrc32(const json& event) {
  if (!event.contains("weights_crc32")) return std::nullopt;
  return static_cast<uint32_t>(WholeOf(event.at("weights_crc32")));
}

std::optional<int64_t> ToPeakGpuMemory(const json& event) {
  const auto found = event.find("gpu_memory_bytes");
  if (found == event.end() || !found->is_object() ||
      !found->contains("peak_reserved")) {
    return std::nullopt;
  }
  int64_t bytes = 0;
  const bool too_many =
      __builtin_add_overflow(WholeOrZero(*found, "model"),
                             WholeOf(found->at("peak_reserved")), &bytes);
  return too_many ? INT64_MAX : bytes;
}

std::optional<int64_t> ToSamples(const json& event) {
  if (!event.contains("samples")) return std::nullopt;
  return WholeOf(event.at("samples"));
}

ProcessEnd ToEnd(const json& event) {
  return {WholeOrZero(event, "step"),
          event.value("seconds", 0.0),
          WholeOf(event.at("bytes_sent")),
          WholeOf(event.at("bytes_received")),
          WholeOf(event.at("peak_memory_bytes")),
          event.value("staleness_mean", 0.0),
          WholeOrZero(event, "staleness_max"),
          ToHistogram(event),
          ToStepTime(event),
          ToCrc32(event),
          ToPeakGpuMemory(event),
          ToSamples(event)};
}

// A script's model comes after its start.
void TakeModel(const json& event, ProcessMetrics* metrics) {
  if (__builtin_add_overflow(metrics->num_parameters,
                             WholeOf(event.at("num_parameters")),
                             &metrics->num_parameters)) {
    metrics->num_parameters = INT64_MAX;
  }
  if (event.contains("global_batch")) {
    metrics->global_batch = WholeOf(event.at("global_batch"));
  }
}

// A script tells of one evaluation in one line or more.
void TakeEpoch(const json& event, ProcessMetrics* metrics) {
  const EpochSample epoch = ToEpoch(event);
  const bool is_new =
      metrics->epochs.empty() || metrics->epochs.back().epoch != epoch.epoch;
  if (is_new) {
    metrics->epochs.push_back(epoch);
    metrics->infinite_loss = metrics->infinite_accuracy = false;
  }
  for (const json& name : event.value("not_finite", json::array())) {
    metrics->infinite_loss |= name == "test_loss";
    metrics->infinite_accuracy |= name == "test_accuracy";
  }
  if (is_new) return;
  EpochSample& told = metrics->epochs.back();
  for (double EpochSample::*figure :
       {&EpochSample::train_loss, &EpochSample::test_loss,
        &EpochSample::test_accuracy, &EpochSample::images_per_second}) {
    if (!std::isnan(epoch.*figure)) told.*figure = epoch.*figure;
  }
}

void TakeProgress(const json& event, ProcessMetrics* metrics) {
  const double unknown = std::nan("");
  const int64_t step = std::max<int64_t>(0, WholeOf(event.at("step")));
  const double now = Number(event, "seconds");
  const double last = event.value("last_step_seconds", 0.0);
  if (std::isnan(now)) return;
  if (last > 0 && step > 0) {
    metrics->progress.push_back({step - 1, now - last, unknown, unknown});
  }
  metrics->progress.push_back({step, now, unknown, unknown});
}

void TakeEvent(const json& event, ProcessMetrics* metrics) {
  const std::string kind = event.at("event").get<std::string>();
  if (kind == "start") TakeStart(event, metrics);
  if (kind == "step") metrics->steps.push_back(ToStep(event));
  if (kind == "model") TakeModel(event, metrics);
  if (kind == "epoch") TakeEpoch(event, metrics);
  if (kind == "progress") TakeProgress(event, metrics);
  if (kind == "end") metrics->end = ToEnd(event);
}

}  // namespace

absl::Status MetricsReader::Read() {
  std::ifstream file(path_, std::ios::binary);
  if (!file || !file.seekg(offset_)) return absl::OkStatus();  // not yet
  const std::string bytes((std::istreambuf_iterator<char>(file)),
                          std::istreambuf_iterator<char>());
  absl::string_view rest = bytes;
  size_t newline;
  while ((newline = rest.find('\n')) != absl::string_view::npos) {
    if (auto s = TakeLine(rest.substr(0, newline)); !s.ok()) return s;
    rest.remove_prefix(newline + 1);
    offset_ += static_cast<int64_t>(newline) + 1;
  }
  return absl::OkStatus();
}

absl::Status MetricsReader::TakeLine(absl::string_view line) {
  ++line_number_;
  try {
    TakeEvent(json::parse(line.begin(), line.end()), &metrics_);
    return absl::OkStatus();
  } catch (const json::exception& error) {
    return absl::DataLossError(
        absl::StrCat(path_, ":", line_number_, ": ", error.what()));
  }
}

absl::StatusOr<std::vector<ProcessMetrics>> ReadAllMetrics(
    const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path());
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot list ", directory, ": ", error.message()));
  }
  std::sort(paths.begin(), paths.end());
  std::vector<ProcessMetrics> all;
  for (const std::string& path : paths) {
    MetricsReader reader(path);
    if (absl::Status s = reader.Read(); !s.ok()) return s;
    all.push_back(reader.metrics());
  }
  return all;
}

}  // namespace psring
