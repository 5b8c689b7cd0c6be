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
    "On one host the limit is a concurrent memory copy, on several the links; "
    "either is\nmeasured in the same run. Open MPI and Gloo are measured too "
    "where they are found.\n"
    "Examples:\n"
    "  psring bench allreduce --sizes=1KB,1MB,100MB --ranks=2,4\n"
    "  psring bench allreduce pushpull links --hosts=4 --link=1gbit   (root)\n"
    "  psring bench train";

void AddSweepFlags(CLI::App& app, BenchFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->capture_default_str();
  };
  add("--sizes", flags.sizes, "of each rank's buffer; 1KB is 1000 bytes");
  add("--ranks", flags.ranks, "numbers of ranks; with --hosts one on each");
  add("--servers", flags.servers, "of pushpull and ps-bsp")
      ->check(CLI::Range(1, kMaxRanks));
  add("--iterations", flags.iterations,
      "that are timed, at least, at each size; small sizes get more")
      ->check(CLI::Range(int64_t{20}, int64_t{1000000}));
  add("--warmup", flags.warmup, "iterations before the timed ones")
      ->check(CLI::Range(int64_t{0}, int64_t{1000000}));
  add("--rounds", flags.rounds,
      "turns that everybody takes at each size, sharing the iterations")
      ->check(CLI::Range(1, 20));
  add("--optimizer", flags.optimizer, "the servers' in pushpull")
      ->check(CLI::IsMember({"sgd", "momentum"}));
  add("--peers", flags.peers,
      "auto (all that are found), none, or of openmpi,gloo");
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
        return absl::InvalidArgumentError(
            absl::StrCat(flag, " means nothing without --hosts"));
      }
    }
    return plan;
  }
  if (absl::c_linear_search(flags.operations, "train")) {
    return absl::InvalidArgumentError("train runs on one host: no --hosts");
  }
  if (app.count("--ranks") == 0) plan.ranks = {flags.hosts};
  for (const int ranks : plan.ranks) {
    if (ranks == flags.hosts) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks: ", ranks, ", but each of --hosts=", flags.hosts,
                     " has just one rank"));
  }
  if (flags.placement == "colocated") {
    if (app.count("--servers") > 0 && flags.servers != flags.hosts) {
      return absl::InvalidArgumentError(
          absl::StrCat("--servers: ", flags.servers,
                       ", but colocated servers are one on each host; choose "
                       "--placement=separate"));
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
  app.add_option("operation", flags.operations,
                 "allreduce, pushpull, train, links: one or more")
      ->required()
      ->check(CLI::IsMember({"allreduce", "pushpull", "train", "links"}));
  AddSweepFlags(app, flags);
  add("--hosts", flags.hosts,
      "make so many hosts of namespaces, with a worker each (root)")
      ->check(CLI::Range(2, 64));
  add("--link", flags.link, "rate of each host's link, such as 100mbit");
  add("--placement", flags.placement,
      "with --hosts: a server on each worker's host, or --servers of them on "
      "hosts of their own")
      ->check(CLI::IsMember({"colocated", "separate"}));
  add("--models", flags.models, "of train; see psring worker --help");
  add("--workers", flags.workers, "numbers of workers of train");
  add("--steps", flags.steps, "of train, timed")
      ->check(CLI::Range(int64_t{1}, int64_t{1000000}));
  add("--repetitions", flags.repetitions, "of train")
      ->check(CLI::Range(1, 100));
  add("--timeout", flags.timeout_s, "seconds until a single run is given up")
      ->check(CLI::Range(1.0, 86400.0));
  add("--out", flags.out, "folder of bench.html and bench.json");
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
                       "\" is no peer; auto, none, or of openmpi,gloo"));
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
