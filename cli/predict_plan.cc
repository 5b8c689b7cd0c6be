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
    "--hosts counts the hosts with a worker; servers of their own come on top. "
    "What no flag\nand no file says is measured on this host in seconds: with "
    "--compute and --parameters\nnothing is.\n"
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
          "\" is no time of at most an hour, such as 12ms or 30us"));
    }
    times.push_back(absl::ToDoubleSeconds(time));
  }
  return times;
}

// Flags that mean something only with, or only without, another.
absl::Status CheckTogether(const CLI::App& app, const PredictFlags& flags) {
  for (const char* flag : {"--links", "--sizes", "--iterations"}) {
    if (flags.check || app.count(flag) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " means nothing without --check"));
  }
  for (const char* flag :
       {"--link", "--from", "--model", "--compute", "--parameters", "--json"}) {
    if (!flags.check || app.count(flag) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " means nothing with --check"));
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
  add("--hosts", flags.hosts, "numbers of hosts with a worker, up to 4096");
  add("--link", flags.link, "rate of each host's link, in each direction");
  add("--latency", flags.latency, "from a small message's send to its receipt");
  add("--servers", flags.servers,
      "numbers of servers on hosts of their own; auto: 1, 2, 4, ...");
  add("--from", flags.from,
      "report.json of psring compare (model, compute times) or bench.json of "
      "psring bench --hosts (link)");
  add("--model", flags.model, "that is measured; see psring worker --help");
  add("--batch-size", flags.batch_size, "samples a step, per worker")
      ->check(CLI::Range(1, 1 << 20));
  add("--threads", flags.threads, "of the measured worker; 0: all cores")
      ->check(CLI::Range(0, 1024));
  add("--measure", flags.measure, "how long a worker is measured");
  add("--parameters", flags.parameters, "of the model, in place of measuring")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  add("--bucket-mb", flags.bucket_mb, "gradients leave in buckets of this size")
      ->check(CLI::Range(0.001, 100000.0));
  add("--compute", flags.compute,
      "a step's forward and backward pass: one time, or several measured ones, "
      "between which every worker's is drawn");
  add("--forward-share", flags.forward_share,
      "of that, before the first gradients")
      ->check(CLI::Range(0.0, 1.0));
  add("--update", flags.update,
      "bytes of gradients that a thread sums and applies in a second, such as "
      "4GB");
  add("--message", flags.message, "a thread's work on each message");
  add("--shard-threads", flags.shard_threads, "of a server")
      ->check(CLI::Range(1, 64));
  add("--steps", flags.steps, "that are simulated where workers differ")
      ->check(CLI::Range(1, 1000));
  add("--seed", flags.seed, "of what is drawn");
  add("--json", flags.json, "file for every prediction");
  add("--out", flags.out, "folder of predict.html (predict-check.json)");
  app.add_flag("--check", flags.check,
               "make hosts of namespaces, measure exchanges on them, and print "
               "predicted against measured; only the runs on 2 hosts calibrate "
               "(root)");
  add("--links", flags.links, "of --check: rates of the hosts' links");
  add("--sizes", flags.sizes, "of --check: bytes of gradients");
  add("--iterations", flags.iterations, "of --check, at each point")
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
