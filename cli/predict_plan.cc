#include "cli/predict_plan.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lab/host/units.h"

namespace psring {
namespace {

constexpr int kMostHosts = 4096;
constexpr int kMostMadeHosts = 64;  // by --check

constexpr char kExample[] =
    "--hosts counts the hosts with a worker; hosts that servers have to "
    "themselves come on top.\nWhat neither a flag nor a file says is measured "
    "on this host, which takes seconds;\n--compute, --parameters and --update "
    "leave nothing to measure.\n"
    "Examples:\n"
    "  psring predict --hosts=8,64,512 --link=10gbit\n"
    "  psring predict --from=report.json --hosts=4,16 --link=1gbit "
    "--servers=1,2,4\n"
    "  psring predict --parameters=25557032 --compute=180ms,185ms,240ms "
    "--link=100gbit\n"
    "  psring predict --check --hosts=2,4,6 --links=100mbit,1gbit   (root)";

// Positive durations, such as 12ms.
absl::StatusOr<std::vector<double>> ParseTimes(const char* flag,
                                               const std::string& text) {
  std::vector<double> times;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    absl::Duration time;
    if (!absl::ParseDuration(part, &time) || time < absl::ZeroDuration() ||
        time > absl::Hours(1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          flag, ": \"", part,
          "\" is not a time of at most an hour, such as 12ms or 30us"));
    }
    times.push_back(absl::ToDoubleSeconds(time));
  }
  return times;
}

absl::StatusOr<double> ParseTime(const char* flag, const std::string& text) {
  const auto times = ParseTimes(flag, text);
  if (!times.ok()) return times.status();
  if (times->size() == 1) return times->front();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": \"", text, "\": give one time"));
}

// What a worker is measured by.
constexpr const char* kMeasurementFlags[] = {
    "--model", "--data", "--batch-size", "--threads", "--measure"};

// Flags that mean something only with, or only without, another.
absl::Status CheckTogether(const CommandLine& line, const PredictFlags& flags) {
  for (const char* flag : {"--links", "--sizes", "--iterations"}) {
    if (flags.check || !line.Has(flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, " needs --check"));
  }
  for (const char* flag :
       {"--link", "--from", "--model", "--data", "--compute", "--parameters",
        "--json", "--latency", "--update", "--message", "--bucket-mb",
        "--forward-share", "--batch-size", "--steps", "--seed", "--threads",
        "--shard-threads", "--measure"}) {
    if (!flags.check || !line.Has(flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " has no effect with --check"));
  }
  const bool measures = !line.Has("--compute") || !line.Has("--parameters");
  for (const char* flag : kMeasurementFlags) {
    if (measures || !line.Has(flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag,
        " has no effect with --compute and --parameters, which leave no "
        "model to measure"));
  }
  return absl::OkStatus();
}

absl::Status PlanHardware(const CommandLine& line, const PredictFlags& flags,
                          PredictOptions* options) {
  const auto rate = ParseRate(flags.link);
  if (!rate.ok()) return OfFlag("--link", rate.status());
  options->hardware.link_bytes_per_s = *rate / 8;
  options->link_given = line.Has("--link");
  const auto latency = ParseTime("--latency", flags.latency);
  if (!latency.ok()) return latency.status();
  options->hardware.latency_s = *latency;
  const auto message = ParseTime("--message", flags.message);
  if (!message.ok()) return message.status();
  options->hardware.message_s = *message;
  if (!flags.update.empty()) {
    const auto update = ParseSize(flags.update);
    if (!update.ok()) return OfFlag("--update", update.status());
    if (*update < 1'000'000) {
      return absl::InvalidArgumentError(
          absl::StrCat("--update=", flags.update,
                       ": no thread is this slow; give a unit, such as 4GB"));
    }
    options->update_bytes_per_s = static_cast<double>(*update);
  }
  return absl::OkStatus();
}

void SortOnce(std::vector<int>& numbers) {
  absl::c_sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

absl::Status PlanScales(const CommandLine& line, const PredictFlags& flags,
                        PredictOptions* options) {
  const std::string hosts =
      flags.check && !line.Has("--hosts") ? "2,4,6" : flags.hosts;
  auto numbers = ParseNumbers(hosts, 2, kMostHosts);
  if (!numbers.ok()) return OfFlag("--hosts", numbers.status());
  options->hosts = *std::move(numbers);
  SortOnce(options->hosts);
  const std::string servers =
      flags.check && flags.servers == "auto" ? "1,2,4" : flags.servers;
  if (servers == "auto") return absl::OkStatus();
  auto given = ParseNumbers(servers, 1, kMostHosts);
  if (!given.ok()) return OfFlag("--servers", given.status());
  options->servers = *std::move(given);
  SortOnce(options->servers);
  return absl::OkStatus();
}

absl::StatusOr<PredictionCheckOptions> PlanCheck(
    const PredictFlags& flags, const PredictOptions& predict) {
  PredictionCheckOptions options = flags.check_options;
  for (absl::string_view link : absl::StrSplit(flags.links, ',')) {
    const auto rate = ParseRate(link);
    if (!rate.ok()) return OfFlag("--links", rate.status());
    options.links.push_back(*rate);
  }
  auto sizes = ParseSizes(flags.sizes);
  if (!sizes.ok()) return OfFlag("--sizes", sizes.status());
  options.sizes = *std::move(sizes);
  options.hosts = predict.hosts;
  options.servers = predict.servers;
  if (!absl::c_linear_search(options.hosts, 2)) {
    return absl::InvalidArgumentError(
        "--hosts: --check calibrates on 2 hosts, which must be among them");
  }
  for (const auto& [flag, numbers] :
       {std::pair("--hosts", &options.hosts),
        std::pair("--servers", &options.servers)}) {
    if (numbers->back() <= kMostMadeHosts) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": --check makes the hosts, at most ", kMostMadeHosts));
  }
  options.out = flags.out;
  options.binaries = flags.binaries;
  return options;
}

}  // namespace

void AddPredictFlags(CommandLine& line, PredictFlags& flags) {
  line.Add("--hosts", flags.hosts,
           "Numbers of hosts with a worker, up to 4096");
  line.Add("--link", flags.link, "Rate of each host's link in each direction");
  line.Add("--latency", flags.latency,
           "Time from a small message's send to its receipt");
  line.Add("--servers", flags.servers,
           "Numbers of servers on hosts of their own; auto: 1, 2, 4, ...");
  line.Add("--from", flags.options.from,
           "File to start from: report.json of psring compare (model, compute "
           "times) or bench.json of psring bench --hosts (link)");
  line.Add("--model", flags.options.measurement.model,
           "Model to measure; see psring worker --help");
  line.Add("--data", flags.options.measurement.data,
           "Data to measure it on, whose images decide how long a step of a "
           "ResNet computes, such as synthetic:3x224x224,classes=1000");
  line.Add("--batch-size", flags.options.measurement.batch_size,
           "Samples a step, per worker")
      .Range(1, 1 << 20);
  line.Add("--threads", flags.options.measurement.threads,
           "Compute threads of the measured worker; 0: all cores")
      .Range(0, 1024);
  line.Add("--measure", flags.measure, "How long to measure a worker");
  line.Add("--parameters", flags.options.parameters,
           "Number of the model's parameters, in place of measuring it")
      .Range(int64_t{1}, int64_t{1} << 40);
  line.Add(
          "--bucket-mb", flags.bucket_mb,
          "Size of the buckets in which gradients leave, in MiB; the last ones "
          "of a step may be smaller")
      .Range(0.001, 100000.0);
  line.Add(
      "--compute", flags.compute,
      "Time of a step's forward and backward pass; of several measured ones, "
      "each step of each worker draws one");
  line.Add("--forward-share", flags.options.forward_share,
           "Share of that time before the first gradients")
      .Range(0.0, 1.0);
  line.Add(
      "--update", flags.update,
      "Bytes of gradients that a thread sums and applies in a second, such as "
      "4GB");
  line.Add("--message", flags.message,
           "Time that a thread works on each message");
  line.Add("--shard-threads", flags.options.hardware.shards,
           "Threads of a server")
      .Range(1, 64);
  line.Add("--steps", flags.options.effort.steps,
           "Steps to simulate where workers differ")
      .Range(1, 1000);
  line.Add("--seed", flags.options.effort.seed,
           "Seed of the simulation's draws")
      .Range(int64_t{0}, int64_t{1} << 40);
  line.Add("--json", flags.json, "File for every prediction");
  line.Add("--out", flags.out,
           "Folder for predict.html; with --check, predict-check.json");
  line.Add("--check", flags.check,
           "Makes hosts of network namespaces, measures exchanges on them, and "
           "prints predictions beside them; only the runs on 2 hosts "
           "calibrate (needs root)");
  line.Add("--links", flags.links, "With --check: rates of the hosts' links");
  line.Add("--sizes", flags.sizes, "With --check: sizes of the gradients");
  line.Add("--iterations", flags.check_options.iterations,
           "With --check: iterations at each point")
      .Range(3, 100000);
  AddBinaryFlags(line, flags.binaries);
  line.Footer(kExample);
}

absl::StatusOr<PredictPlan> PlanPredict(const CommandLine& line,
                                        const PredictFlags& flags) {
  if (absl::Status s = CheckTogether(line, flags); !s.ok()) return s;
  PredictPlan plan;
  PredictOptions& options = plan.options;
  options = flags.options;
  if (absl::Status s = PlanScales(line, flags, &options); !s.ok()) return s;
  if (!flags.compute.empty()) {
    auto times = ParseTimes("--compute", flags.compute);
    if (!times.ok()) return times.status();
    options.compute_s = *std::move(times);
  }
  const auto measure = ParseTime("--measure", flags.measure);
  if (!measure.ok()) return measure.status();
  options.measurement.budget = absl::Seconds(*measure);
  options.measurement.worker_binary = flags.binaries.worker;
  options.measurement.model_given = line.Has("--model");
  for (const char* flag : kMeasurementFlags) {
    if (line.Has(flag)) options.measurement.flag_given = flag;
  }
  options.bucket_bytes = flags.bucket_mb * (1 << 20);
  // What a file says is known when it has been read.
  if (options.from.empty()) {
    absl::Status s = CheckGiven(options, PredictSource());
    if (!s.ok()) return s;
  }
  if (absl::Status s = PlanHardware(line, flags, &options); !s.ok()) return s;
  if (!flags.check) return plan;
  auto check = PlanCheck(flags, options);
  if (!check.ok()) return check.status();
  plan.check = *std::move(check);
  return plan;
}

}  // namespace psring
