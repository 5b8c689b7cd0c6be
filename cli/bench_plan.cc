#include "cli/bench_plan.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lab/bench/pattern.h"
#include "lab/bench/peers.h"
#include "lab/host/units.h"

namespace psring {
namespace {

constexpr char kExample[] =
    "The limit on one host is a concurrent memory copy, between hosts the "
    "links; the same\nrun measures it. Open MPI and Gloo are measured too "
    "where "
    "they are installed.\n"
    "Examples:\n"
    "  psring bench allreduce --sizes=1KB,1MB,100MB --ranks=2,4\n"
    "  psring bench allreduce pushpull links --hosts=4 --link=1gbit   (root)\n"
    "  psring bench train";

void AddSweepFlags(CLI::App& app, BenchFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->capture_default_str();
  };
  add("--sizes", flags.sizes, "Sizes of each rank's buffer; 1KB is 1000 bytes");
  add("--ranks", flags.ranks, "Numbers of ranks; with --hosts, one a host");
  add("--servers", flags.servers, "Number of servers of pushpull and ps-bsp")
      ->check(CLI::Range(1, kMaxRanks));
  add("--iterations", flags.iterations,
      "Timed iterations at each size, at least; small sizes get more")
      ->check(CLI::Range(int64_t{20}, int64_t{1000000}));
  add("--warmup", flags.warmup, "Iterations before the timed ones")
      ->check(CLI::Range(int64_t{0}, int64_t{1000000}));
  add("--rounds", flags.rounds,
      "Rounds at each size, in which all contenders take turns; the "
      "iterations are shared out among them")
      ->check(CLI::Range(1, 20));
  add("--optimizer", flags.optimizer, "The servers' optimizer in pushpull")
      ->check(CLI::IsMember({"sgd", "momentum"}));
  add("--peers", flags.peers,
      "Whom to compare with: auto (all that are installed), none, or a list "
      "of openmpi,gloo");
}

// With the flag's name before what is wrong with its value.
absl::Status OfFlag(const char* flag, const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": ", std::string(status.message())));
}

absl::StatusOr<BenchPlan> PlanHosts(const CLI::App& app,
                                    const BenchFlags& flags, BenchPlan plan) {
  if (flags.hosts == 0) {
    for (const char* flag : {"--link", "--placement"}) {
      if (app.count(flag) > 0) {
        return absl::InvalidArgumentError(absl::StrCat(flag, " needs --hosts"));
      }
    }
    return plan;
  }
  if (absl::c_linear_search(flags.operations, "train")) {
    return absl::InvalidArgumentError(
        "train runs on one host, without --hosts");
  }
  if (app.count("--ranks") == 0) plan.ranks = {flags.hosts};
  for (const int ranks : plan.ranks) {
    if (ranks == flags.hosts) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--ranks: ", ranks, ", but each host of --hosts=", flags.hosts,
        " has exactly one rank"));
  }
  if (flags.placement == "colocated") {
    if (app.count("--servers") > 0 && flags.servers != flags.hosts) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--servers: ", flags.servers,
          ", but --placement=colocated puts one server on each host; "
          "choose --placement=separate"));
    }
    plan.placement = Placement::kColocated;
    plan.servers = flags.hosts;
  } else {
    plan.server_hosts = flags.servers;
  }
  return plan;
}

}  // namespace

void AddBenchFlags(CLI::App& app, BenchFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->capture_default_str();
  };
  app.add_option(
         "operation", flags.operations,
         "What to measure, one or more: allreduce, pushpull, train, links")
      ->required()
      ->check(CLI::IsMember({"allreduce", "pushpull", "train", "links"}));
  AddSweepFlags(app, flags);
  add("--hosts", flags.hosts,
      "Number of hosts to make of network namespaces, with a worker each "
      "(needs root)")
      ->check(CLI::Range(2, 64));
  add("--link", flags.link, "Rate of each host's link, such as 100mbit");
  add("--placement", flags.placement,
      "With --hosts: colocated puts a server on each worker's host, separate "
      "puts --servers of them on hosts of their own")
      ->check(CLI::IsMember({"colocated", "separate"}));
  add("--models", flags.models, "Models to train; see psring worker --help");
  add("--workers", flags.workers, "Numbers of workers to train with");
  add("--steps", flags.steps, "Timed steps of each training")
      ->check(CLI::Range(int64_t{1}, int64_t{1000000}));
  add("--repetitions", flags.repetitions, "Repetitions of each training")
      ->check(CLI::Range(1, 100));
  add("--timeout", flags.timeout_s,
      "Seconds after which a single run is given up")
      ->check(CLI::Range(1.0, 86400.0));
  add("--out", flags.out, "Folder for bench.html and bench.json");
  AddBinaryFlags(app, flags.binaries);
  app.footer(kExample);
}

absl::StatusOr<BenchPlan> PlanBench(const CLI::App& app,
                                    const BenchFlags& flags) {
  BenchPlan plan;
  auto sizes = ParseSizes(flags.sizes);
  if (!sizes.ok()) return OfFlag("--sizes", sizes.status());
  auto ranks = ParseNumbers(flags.ranks, 2, kMaxRanks);
  if (!ranks.ok()) return OfFlag("--ranks", ranks.status());
  auto workers = ParseNumbers(flags.workers, 1, kMaxRanks);
  if (!workers.ok()) return OfFlag("--workers", workers.status());
  const auto rate = ParseRate(flags.link);
  if (!rate.ok()) return OfFlag("--link", rate.status());
  if (flags.peers != "auto" && flags.peers != "none") {
    for (absl::string_view peer : absl::StrSplit(flags.peers, ',')) {
      if (peer == kOpenMpi || peer == kGloo) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("--peers: \"", peer,
                       "\" is not auto, none or a list of openmpi,gloo"));
    }
  }
  plan.sizes = *std::move(sizes);
  plan.ranks = *std::move(ranks);
  plan.workers = *std::move(workers);
  plan.models = absl::StrSplit(flags.models, ',');
  plan.link_bits_per_s = *rate;
  plan.servers = flags.servers;
  return PlanHosts(app, flags, std::move(plan));
}

}  // namespace psring
