#include "lab/predict/predict_source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/host_cores.h"
#include "common/shallow_json.h"
#include "lab/host/job.h"
#include "lab/host/other_load.h"
#include "lab/host/supervisor.h"
#include "lab/host/temp_dir.h"

namespace psring {
namespace {

using nlohmann::json;

constexpr size_t kLeastReports = 4;
// How long a worker may take to make so many.
constexpr absl::Duration kPatience = absl::Minutes(2);

// What copies a part of a file takes a stack as deep. psring's have a few.
constexpr int kMaxDepth = 64;

// Of what files say; it fits an int64_t.
constexpr double kLargest = 1e18;
// What is less counts as none: a quotient by it would be infinite.
constexpr double kLeast = 1 / kLargest;

// A field of a file, or DATA_LOSS with its place.
class Field {
 public:
  Field(const std::string& path, const json& root)
      : where_(path), value_(&root) {}

  bool ok() const { return value_ != nullptr; }
  absl::Status status() const { return absl::DataLossError(problem_); }
  size_t size() const { return value_->size(); }

  // A field of a missing field is missing.
  Field operator[](const char* key) const {
    if (!ok()) return *this;
    return value_->is_object() && value_->contains(key)
               ? Field(where_, place_.empty() ? key : place_ + "." + key,
                       (*value_)[key])
               : Missing(place_.empty() ? key : place_ + "." + key);
  }
  Field operator[](size_t index) const {
    if (!ok()) return *this;
    const std::string place = absl::StrCat(place_, "[", index, "]");
    return value_->is_array() && index < value_->size()
               ? Field(where_, place, (*value_)[index])
               : Missing(place);
  }

  // Empty: it is none, or is not there.
  std::string TextIfAny() const {
    return ok() && value_->is_string() ? value_->get<std::string>() : "";
  }

  absl::StatusOr<double> Positive() const {
    if (!ok()) return status();
    const auto value = NotNegative();
    return value.ok() && *value > kLeast ? value : IsNot("a positive number");
  }

  absl::StatusOr<double> NotNegative() const {
    if (!ok()) return status();
    if (value_->is_number() && value_->get<double>() >= 0 &&
        value_->get<double>() <= kLargest) {
      return value_->get<double>();
    }
    return IsNot("a number from 0 on");
  }

  absl::Status IsNot(const char* what) const {
    return absl::DataLossError(
        absl::StrCat("--from: ", place_, " of ", where_, " is not ", what));
  }

 private:
  Field(const std::string& where, std::string place, const json& value)
      : where_(where), place_(std::move(place)), value_(&value) {}

  Field Missing(const std::string& place) const {
    Field field = *this;
    field.value_ = nullptr;
    field.problem_ = absl::StrCat(
        "--from: ", where_, " has no ", place,
        ". It must be report.json of psring compare, or bench.json of psring "
        "bench --hosts");
    return field;
  }

  std::string where_;
  std::string place_;
  std::string problem_;
  const json* value_;
};

// A run's times between reports, and its mean step.
struct RunSteps {
  double mean = 0;
  double parameters = 0;
  std::vector<StepSample> steps;
};

absl::StatusOr<RunSteps> ReadRun(const Field& run) {
  RunSteps read;
  const auto seconds = run["seconds"].Positive();
  if (!seconds.ok()) return seconds.status();
  const auto num_steps = run["num_steps"].Positive();
  if (!num_steps.ok()) return num_steps.status();
  const auto parameters = run["num_parameters"].Positive();
  if (!parameters.ok()) return parameters.status();
  read.mean = *seconds / *num_steps;
  read.parameters = *parameters;
  const Field steps = run["steps"];
  if (!steps.ok()) return steps.status();
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto step = steps[i]["step"].NotNegative();
    if (!step.ok()) return step.status();
    const auto at = steps[i]["seconds"].NotNegative();
    if (!at.ok()) return at.status();
    read.steps.push_back({static_cast<int64_t>(*step), *at, 0, 0});
  }
  return read;
}

std::optional<double> OtherCores(const json& run) {
  const json cores = run.value("other_cores", json());
  return cores.is_number() ? std::optional(cores.get<double>()) : std::nullopt;
}

// The times of all workers; empty where the run does not tell.
std::vector<double> BusyTimes(const json& run) {
  std::vector<double> times;
  for (const json& worker : run.value("step_seconds", json::object())) {
    if (!worker.is_object()) continue;
    for (const json& seconds : worker.value("busy", json::array())) {
      if (seconds.is_number()) times.push_back(seconds.get<double>());
    }
  }
  return times;
}

// Where the run stands on an axis; empty: it does not say.
std::string ValueOf(const json& run, const char* axis) {
  const json point = run.is_object() ? run.value("point", json()) : json();
  return point.is_object() && point.contains(axis) && point[axis].is_string()
             ? point[axis].get<std::string>()
             : "";
}

// A run whose speed was tampered with says nothing of this machine. How long
// its workers were busy does not depend on its links.
bool HasFault(const json& run) {
  const auto on = [&](const char* axis) {
    const std::string value = ValueOf(run, axis);
    return !value.empty() && value != "none";
  };
  return on("slow") || (on("link") && BusyTimes(run).empty());
}

// Whether its workers had flags of their own, such as another batch size.
bool HasOwnFlags(const json& run) {
  return absl::StrContains(ValueOf(run, "mode"), '+');
}

// "ring, 2 workers"; empty: it does not say.
std::string NameOf(const json& run) {
  const std::string way = ValueOf(run, "mode");
  const std::string workers = ValueOf(run, "workers");
  return way.empty() ? ""
                     : absl::StrCat(way, ", ", workers,
                                    workers == "1" ? " worker" : " workers");
}

absl::StatusOr<PredictSource> ReadReport(const json& root, const Field& file) {
  const Field runs = file["runs"];
  if (!runs[size_t{0}].ok()) return runs[size_t{0}].status();
  PredictSource source;
  // Those with flags of their own last.
  std::pair<bool, double> first = {true,
                                   std::numeric_limits<double>::infinity()};
  for (size_t i = 0; i < runs.size(); ++i) {
    if (HasFault(root["runs"][i])) continue;
    const auto run = ReadRun(runs[i]);
    if (!run.ok()) return run.status();
    const std::pair place(HasOwnFlags(root["runs"][i]), run->mean);
    if (place >= first) continue;
    first = place;
    source.run = NameOf(root["runs"][i]);
    source.parameters = static_cast<int64_t>(run->parameters);
    source.compute_s = BusyTimes(root["runs"][i]);
    for (const double seconds : source.compute_s) {
      if (seconds >= 0 && seconds <= kLargest) continue;
      return runs[i]["step_seconds"].IsNot("of busy times from 0 on");
    }
    source.with_exchange = source.compute_s.empty();
    if (source.with_exchange) source.compute_s = StepSeconds(run->steps);
    if (source.compute_s.empty()) source.compute_s = {run->mean};
    source.other_cores = OtherCores(root["runs"][i]);
  }
  if (source.compute_s.empty()) {
    return absl::FailedPreconditionError(
        "--from: no run of the report tells how long this host computes: each "
        "had a slow worker, or links of a given rate and no busy times");
  }
  source.model = file["setup"]["flags"]["--model"].TextIfAny();
  return source;
}

absl::StatusOr<PredictSource> ReadBench(const Field& file) {
  const Field links = file["links"];
  if (!links[size_t{0}].ok()) return links[size_t{0}].status();
  double slowest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < links.size(); ++i) {
    const auto rate = links[i]["median_bits_per_s"].Positive();
    if (!rate.ok()) return rate.status();
    slowest = std::min(slowest, *rate);
  }
  PredictSource source;
  source.link_bits_per_s = slowest;
  return source;
}

// Trains without end: whoever measures stops it.
Job JobOf(const WorkerMeasurement& wanted, const std::string& directory) {
  Job job;
  job.mode = "ring";
  job.workers = 1;
  job.threads_per_worker = wanted.threads > 0 ? wanted.threads : HostCores();
  job.worker_binary = wanted.worker_binary;
  job.metrics_dir = directory;
  job.worker_flags = {absl::StrCat("--model=", wanted.model),
                      absl::StrCat("--data=", wanted.data),
                      absl::StrCat("--batch-size=", wanted.batch_size),
                      "--steps=1000000",
                      "--lr=0.001",
                      "--log-level=warn"};
  return job;
}

}  // namespace

std::vector<double> StepSeconds(const std::vector<StepSample>& steps) {
  std::vector<double> seconds;
  for (size_t i = 1; i < steps.size(); ++i) {
    const int64_t done = steps[i].step - steps[i - 1].step;
    const double took = steps[i].seconds - steps[i - 1].seconds;
    if (done > 0 && took > 0) {
      seconds.push_back(took / static_cast<double>(done));
    }
  }
  return seconds;
}

absl::StatusOr<PredictSource> ReadSource(const std::string& path) {
  // Its stream opens, and throws when it is read.
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--from: ", path,
                     " is a folder: name the file in it, report.json of psring "
                     "compare or bench.json of psring bench"));
  }
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("--from: cannot read ", path,
                     ". psring compare writes report.json, psring bench "
                     "bench.json"));
  }
  // Unlike an iterator, it does not throw where reading fails.
  std::ostringstream text;
  text << file.rdbuf();
  const json root = ParseShallowObject(text.str(), kMaxDepth);
  if (!root.is_object()) {
    return absl::DataLossError(
        absl::StrCat("--from: ", path,
                     " is not a JSON object, or has more "
                     "than ",
                     kMaxDepth, " levels"));
  }
  const Field field(path, root);
  return root.contains("links") ? ReadBench(field) : ReadReport(root, field);
}

absl::StatusOr<PredictSource> MeasureWorker(const WorkerMeasurement& wanted,
                                            const Cancellation& cancellation) {
  auto dir = TempDir::Create();
  if (!dir.ok()) return dir.status();
  Supervisor supervisor(cancellation, SupervisorOptions());
  const OtherLoad others;
  absl::Status status =
      StartJob(JobOf(wanted, dir->path()), supervisor, kPatience).status();
  MetricsReader reader(absl::StrCat(dir->path(), "/worker-0.jsonl"));
  const auto enough = [&] {
    status.Update(reader.Read());
    const std::vector<StepSample>& steps = reader.metrics().steps;
    return supervisor.AllEnded() || !status.ok() ||
           (steps.size() >= kLeastReports &&
            steps.back().seconds - steps.front().seconds >
                absl::ToDoubleSeconds(wanted.budget));
  };
  if (status.ok()) {
    status = supervisor.RunUntil(enough, Now() + wanted.budget + kPatience);
  }
  if (supervisor.first_failure()) {
    status = absl::AbortedError(ToString(*supervisor.first_failure()));
  }
  supervisor.Stop();
  supervisor.Wait();
  if (!cancellation.status().ok()) return cancellation.status();
  if (status.ok() && reader.metrics().steps.size() < kLeastReports) {
    status = absl::FailedPreconditionError("it has reported too few steps");
  }
  if (!status.ok()) {
    return absl::Status(
        status.code(),
        absl::StrCat("measuring ", wanted.model, ": ",
                     std::string(status.message()),
                     ". Remedy: --compute and --parameters say it instead"));
  }
  PredictSource source;
  source.model = wanted.model;
  source.parameters = reader.metrics().num_parameters;
  source.compute_s = StepSeconds(reader.metrics().steps);
  source.other_cores = others.Cores();
  return source;
}

}  // namespace psring
