#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/trace/whole_number.h"
#include "lab/study/run_result.h"

namespace psring {
namespace {

using nlohmann::json;

// JSON has no NaN.
json Number(double value) {
  return std::isfinite(value) ? json(value) : json();
}

double ToNumber(const json& value) {
  return value.is_null() ? std::nan("") : value.get<double>();
}

json StepsJson(const RunResult& run) {
  json steps = json::array();
  for (const StepSample& sample : run.steps) {
    steps.push_back({{"step", sample.step},
                     {"seconds", Number(sample.seconds)},
                     {"loss", Number(sample.loss)},
                     {"images_per_second", Number(sample.images_per_second)}});
  }
  return steps;
}

json EpochsJson(const RunResult& run) {
  json epochs = json::array();
  for (const EpochSample& sample : run.epochs) {
    epochs.push_back({{"epoch", sample.epoch},
                      {"step", sample.step},
                      {"seconds", Number(sample.seconds)},
                      {"train_loss", Number(sample.train_loss)},
                      {"test_loss", Number(sample.test_loss)},
                      {"test_accuracy", Number(sample.test_accuracy)},
                      {"images_per_second", Number(sample.images_per_second)}});
  }
  return epochs;
}

json HistogramJson(const RunResult& run) {
  json histogram = json::object();
  for (const auto& [rank, counts] : run.staleness_histogram) {
    histogram[absl::StrCat(rank)] = counts;
  }
  return histogram;
}

json StepTimesJson(const RunResult& run) {
  json times = json::object();
  for (const auto& [rank, time] : run.step_times) {
    times[absl::StrCat(rank)] = {{"compute", Number(time.compute)},
                                 {"exposed", Number(time.exposed)},
                                 {"wait", Number(time.wait)},
                                 {"busy", time.busy}};
  }
  return times;
}

void TakeCourses(const json& value, RunResult* run) {
  for (const json& sample : value.at("steps")) {
    run->steps.push_back({WholeOf(sample.at("step")),
                          ToNumber(sample.at("seconds")),
                          ToNumber(sample.at("loss")),
                          ToNumber(sample.at("images_per_second"))});
  }
  for (const json& sample : value.at("epochs")) {
    run->epochs.push_back(
        {WholeOf(sample.at("epoch")), WholeOf(sample.at("step")),
         ToNumber(sample.at("seconds")), ToNumber(sample.at("train_loss")),
         ToNumber(sample.at("test_loss")), ToNumber(sample.at("test_accuracy")),
         ToNumber(sample.at("images_per_second"))});
  }
}

void TakeByWorker(const json& value, RunResult* run) {
  for (const auto& [rank, counts] : value.at("staleness_histogram").items()) {
    std::vector<int64_t>& histogram = run->staleness_histogram[std::stoi(rank)];
    for (const json& count : counts) histogram.push_back(WholeOf(count));
  }
  for (const auto& [rank, time] : value.at("step_seconds").items()) {
    run->step_times[std::stoi(rank)] = {
        ToNumber(time.at("compute")), ToNumber(time.at("exposed")),
        ToNumber(time.at("wait")), time.at("busy").get<std::vector<double>>()};
  }
}

RunResult Take(const json& value) {
  RunResult run;
  for (const Axis& axis : Axes()) {
    run.point.push_back(value.at("point").at(axis.name).get<std::string>());
  }
  run.num_parameters = WholeOf(value.at("num_parameters"));
  run.num_steps = WholeOf(value.at("num_steps"));
  run.seconds = ToNumber(value.at("seconds"));
  run.wall_seconds = ToNumber(value.at("wall_seconds"));
  if (const json cores = value.value("other_cores", json()); !cores.is_null()) {
    run.other_cores = cores.get<double>();
  }
  run.images_per_second = ToNumber(value.at("images_per_second"));
  run.counts_steps = value.value("counts_steps", false);
  run.on_gpu = value.value("on_gpu", false);
  run.data = value.value("data", "");
  run.test_accuracy = ToNumber(value.at("test_accuracy"));
  run.test_loss = ToNumber(value.at("test_loss"));
  const json percent = value.value("printed_percent", json());
  if (!percent.is_null()) run.printed_percent = percent.get<bool>();
  run.worker_bytes_per_step = ToNumber(value.at("worker_bytes_sent_per_step"));
  run.server_bytes_per_step = ToNumber(value.at("server_bytes_sent_per_step"));
  run.worker_peak_bytes = WholeOf(value.at("worker_peak_bytes"));
  run.worker_peak_gpu_bytes = WholeOrZero(value, "worker_peak_gpu_bytes");
  run.server_peak_bytes = WholeOf(value.at("server_peak_bytes"));
  run.staleness_mean = ToNumber(value.at("staleness_mean"));
  run.staleness_max = WholeOf(value.at("staleness_max"));
  const json& predicted = value.at("predicted_step_seconds");
  if (!predicted.is_null()) run.predicted_step_s = predicted.get<double>();
  if (const json& crc = value.at("weights_crc32"); !crc.is_null()) {
    run.weights_crc32 =
        static_cast<uint32_t>(std::stoul(crc.get<std::string>(), nullptr, 16));
  }
  TakeByWorker(value, &run);
  TakeCourses(value, &run);
  return run;
}

}  // namespace

json PointJson(const Point& point) {
  json values = json::object();
  for (size_t i = 0; i < Axes().size(); ++i) values[Axes()[i].name] = point[i];
  return values;
}

json ToJson(const RunResult& run) {
  return {
      {"point", PointJson(run.point)},
      {"num_parameters", run.num_parameters},
      {"num_steps", run.num_steps},
      {"seconds", Number(run.seconds)},
      {"wall_seconds", Number(run.wall_seconds)},
      {"other_cores", run.other_cores ? Number(*run.other_cores) : json()},
      {"images_per_second", Number(run.images_per_second)},
      {"counts_steps", run.counts_steps},
      {"on_gpu", run.on_gpu},
      {"data", run.data},
      {"test_accuracy", Number(run.test_accuracy)},
      {"test_loss", Number(run.test_loss)},
      {"printed_percent",
       run.printed_percent ? json(*run.printed_percent) : json()},
      {"worker_bytes_sent_per_step", Number(run.worker_bytes_per_step)},
      {"server_bytes_sent_per_step", Number(run.server_bytes_per_step)},
      {"worker_peak_bytes", run.worker_peak_bytes},
      {"server_peak_bytes", run.server_peak_bytes},
      {"worker_peak_gpu_bytes", run.worker_peak_gpu_bytes},
      {"staleness_mean", Number(run.staleness_mean)},
      {"staleness_max", run.staleness_max},
      {"staleness_histogram", HistogramJson(run)},
      {"step_seconds", StepTimesJson(run)},
      {"predicted_step_seconds",
       run.predicted_step_s ? Number(*run.predicted_step_s) : json()},
      {"weights_crc32", run.weights_crc32
                            ? json(absl::StrFormat("%08x", *run.weights_crc32))
                            : json()},
      {"steps", StepsJson(run)},
      {"epochs", EpochsJson(run)},
  };
}

absl::StatusOr<RunResult> RunFromJson(const json& value) {
  try {
    RunResult run = Take(value);
    if (!run.epochs.empty()) return run;
    return absl::DataLossError("it tells of no evaluation");
  } catch (const json::exception& error) {
    return absl::DataLossError(error.what());
  } catch (const std::logic_error& error) {  // of stoi and stoul
    return absl::DataLossError(
        absl::StrCat("a number is wrong: ", error.what()));
  }
}

}  // namespace psring
