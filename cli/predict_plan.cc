#include "cli/predict_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "lab/host/units.h"

namespace psring {
namespace {

constexpr int kMostHosts = 4096;

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

absl::Status OfFlag(const char* flag, const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": ", std::string(status.message())));
}

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

// Flags that mean something only with, or only without, another.
absl::Status CheckTogether(const CLI::App& app, const PredictFlags& flags) {
  for (const char* flag : {"--links", "--sizes", "--iterations"}) {
    if (flags.check || app.count(flag) == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, " needs --check"));
  }
  for (const char* flag :
       {"--link", "--from", "--model", "--compute", "--parameters", "--json"}) {
    if (!flags.check || app.count(flag) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " has no effect with --check"));
  }
  if (app.count("--compute") > 0 && app.count("--parameters") == 0 &&
      flags.from.empty()) {
    return absl::InvalidArgumentError(
        "--compute says how long a model computes; say its --parameters too");
  }
  return absl::OkStatus();
}

absl::Status PlanHardware(const CLI::App& app, const PredictFlags& flags,
                          PredictPlan* plan) {
  const auto rate = ParseRate(flags.link);
  if (!rate.ok()) return OfFlag("--link", rate.status());
  plan->hardware.link_bytes_per_s = *rate / 8;
  plan->link_given = app.count("--link") > 0;
  const auto latency = ParseTimes("--latency", flags.latency);
  if (!latency.ok()) return latency.status();
  plan->hardware.latency_s = latency->front();
  const auto message = ParseTimes("--message", flags.message);
  if (!message.ok()) return message.status();
  plan->hardware.message_s = message->front();
  plan->hardware.shards = flags.shard_threads;
  if (!flags.update.empty()) {
    const auto update = ParseSize(flags.update);
    if (!update.ok()) return OfFlag("--update", update.status());
    plan->update_bytes_per_s = static_cast<double>(*update);
  }
  return absl::OkStatus();
}

absl::Status PlanCheck(const PredictFlags& flags, PredictPlan* plan) {
  for (absl::string_view link : absl::StrSplit(flags.links, ',')) {
    const auto rate = ParseRate(link);
    if (!rate.ok()) return OfFlag("--links", rate.status());
    plan->links.push_back(*rate);
  }
  auto sizes = ParseSizes(flags.sizes);
  if (!sizes.ok()) return OfFlag("--sizes", sizes.status());
  plan->sizes = *std::move(sizes);
  if (flags.check && std::find(plan->hosts.begin(), plan->hosts.end(), 2) ==
                         plan->hosts.end()) {
    return absl::InvalidArgumentError(
        "--hosts: --check calibrates on 2 hosts, which must be among them");
  }
  if (flags.check && plan->hosts.back() > 64) {
    return absl::InvalidArgumentError(
        "--hosts: --check makes the hosts, at most 64");
  }
  return absl::OkStatus();
}

}  // namespace

void AddPredictFlags(CLI::App& app, PredictFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->capture_default_str();
  };
  add("--hosts", flags.hosts, "Numbers of hosts with a worker, up to 4096");
  add("--link", flags.link, "Rate of each host's link in each direction");
  add("--latency", flags.latency,
      "Time from a small message's send to its receipt");
  add("--servers", flags.servers,
      "Numbers of servers on hosts of their own; auto: 1, 2, 4, ...");
  add("--from", flags.from,
      "File to start from: report.json of psring compare (model, compute "
      "times) or bench.json of psring bench --hosts (link)");
  add("--model", flags.model, "Model to measure; see psring worker --help");
  add("--batch-size", flags.batch_size, "Samples a step, per worker")
      ->check(CLI::Range(1, 1 << 20));
  add("--threads", flags.threads,
      "Compute threads of the measured worker; 0: all cores")
      ->check(CLI::Range(0, 1024));
  add("--measure", flags.measure, "How long to measure a worker");
  add("--parameters", flags.parameters,
      "Number of the model's parameters, in place of measuring it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  add("--bucket-mb", flags.bucket_mb,
      "Size of the buckets in which gradients leave, in MiB")
      ->check(CLI::Range(0.001, 100000.0));
  add("--compute", flags.compute,
      "Time of a step's forward and backward pass; of several measured ones, "
      "each step of each worker draws one");
  add("--forward-share", flags.forward_share,
      "Share of that time before the first gradients")
      ->check(CLI::Range(0.0, 1.0));
  add("--update", flags.update,
      "Bytes of gradients that a thread sums and applies in a second, such as "
      "4GB");
  add("--message", flags.message, "Time that a thread works on each message");
  add("--shard-threads", flags.shard_threads, "Threads of a server")
      ->check(CLI::Range(1, 64));
  add("--steps", flags.steps, "Steps to simulate where workers differ")
      ->check(CLI::Range(1, 1000));
  add("--seed", flags.seed, "Seed of the simulation's draws");
  add("--json", flags.json, "File for every prediction");
  add("--out", flags.out,
      "Folder for predict.html; with --check, predict-check.json");
  app.add_flag(
      "--check", flags.check,
      "Makes hosts of network namespaces, measures exchanges on them, and "
      "prints predictions beside them; only the runs on 2 hosts "
      "calibrate (needs root)");
  add("--links", flags.links, "With --check: rates of the hosts' links");
  add("--sizes", flags.sizes, "With --check: sizes of the gradients");
  add("--iterations", flags.iterations,
      "With --check: iterations at each point")
      ->check(CLI::Range(int64_t{3}, int64_t{100000}));
  AddBinaryFlags(app, flags.binaries);
  app.footer(kExample);
}

absl::StatusOr<PredictPlan> PlanPredict(const CLI::App& app,
                                        const PredictFlags& flags) {
  if (absl::Status s = CheckTogether(app, flags); !s.ok()) return s;
  PredictPlan plan;
  const std::string hosts =
      flags.check && app.count("--hosts") == 0 ? "2,4,6" : flags.hosts;
  auto numbers = ParseNumbers(hosts, 2, kMostHosts);
  if (!numbers.ok()) return OfFlag("--hosts", numbers.status());
  plan.hosts = *std::move(numbers);
  std::sort(plan.hosts.begin(), plan.hosts.end());
  const std::string servers =
      flags.check && flags.servers == "auto" ? "1,2,4" : flags.servers;
  if (servers != "auto") {
    auto given = ParseNumbers(servers, 1, kMostHosts);
    if (!given.ok()) return OfFlag("--servers", given.status());
    plan.servers = *std::move(given);
    std::sort(plan.servers.begin(), plan.servers.end());
  }
  if (!flags.compute.empty()) {
    auto times = ParseTimes("--compute", flags.compute);
    if (!times.ok()) return times.status();
    plan.compute_s = *std::move(times);
  }
  const auto measure = ParseTimes("--measure", flags.measure);
  if (!measure.ok()) return measure.status();
  plan.measure_s = measure->front();
  plan.effort = {.steps = flags.steps, .seed = flags.seed};
  if (absl::Status s = PlanHardware(app, flags, &plan); !s.ok()) return s;
  if (absl::Status s = PlanCheck(flags, &plan); !s.ok()) return s;
  return plan;
}

}  // namespace psring
