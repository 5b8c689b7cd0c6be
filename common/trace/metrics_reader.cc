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
  metrics->rank = event.at("rank").get<int64_t>();
  metrics->num_parameters = event.value("num_parameters", int64_t{0});
  metrics->total_steps = event.value("total_steps", int64_t{0});
  metrics->steps_per_epoch = event.value("steps_per_epoch", int64_t{0});
  metrics->global_batch = event.value("global_batch", int64_t{0});
}

StepSample ToStep(const json& event) {
  return {event.at("step").get<int64_t>(), Number(event, "seconds"),
          Number(event, "loss"), Number(event, "images_per_second")};
}

EpochSample ToEpoch(const json& event) {
  return {event.at("epoch").get<int64_t>(),  event.at("step").get<int64_t>(),
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
      histogram[number] = counts.get<std::vector<int64_t>>();
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

ProcessEnd ToEnd(const json& event) {
  return {event.value("step", int64_t{0}),
          event.value("seconds", 0.0),
          event.at("bytes_sent").get<int64_t>(),
          event.at("bytes_received").get<int64_t>(),
          event.at("peak_memory_bytes").get<int64_t>(),
          event.value("staleness_mean", 0.0),
          event.value("staleness_max", int64_t{0}),
          ToHistogram(event),
          ToStepTime(event),
          event.value("weights_crc32", uint32_t{0})};
}

// A script's model comes after its start.
void TakeModel(const json& event, ProcessMetrics* metrics) {
  metrics->num_parameters += event.at("num_parameters").get<int64_t>();
  metrics->global_batch = event.value("global_batch", metrics->global_batch);
}

void TakeEvent(const json& event, ProcessMetrics* metrics) {
  const std::string kind = event.at("event").get<std::string>();
  if (kind == "start") TakeStart(event, metrics);
  if (kind == "step") metrics->steps.push_back(ToStep(event));
  if (kind == "model") TakeModel(event, metrics);
  if (kind == "epoch") metrics->epochs.push_back(ToEpoch(event));
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
