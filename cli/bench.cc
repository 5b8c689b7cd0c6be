#include "cli/bench.h"

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "bench/bench_cells.h"
#include "bench/bench_html.h"
#include "bench/bench_json.h"
#include "bench/hosts.h"
#include "bench/link_bench.h"
#include "bench/pattern.h"
#include "bench/peers.h"
#include "bench/stream_copy.h"
#include "bench/sweep.h"
#include "bench/train_bench.h"
#include "bench/units.h"
#include "cli/machine.h"
#include "cli/report_files.h"
#include "cli/report_parts.h"
#include "cli/temp_dir.h"
#include "cli/text_table.h"
#include "cli/version.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"

namespace psring {
namespace {

constexpr char kBenchHtml[] = "bench.html";
constexpr char kBenchJson[] = "bench.json";

constexpr char kDescription[] =
    "Measures the exchange of gradients (allreduce; pushpull: push, update, "
    "pull), the links and training, and verifies every result. Prints a table "
    "and writes bench.html and bench.json.";

constexpr char kExample[] =
    "On one host the limit is a concurrent memory copy, on several the links; "
    "either is\nmeasured in the same run. Open MPI and Gloo are measured too "
    "where they are found.\n"
    "Examples:\n"
    "  psring bench allreduce --sizes=1KB,1MB,100MB --ranks=2,4\n"
    "  psring bench allreduce pushpull links --hosts=4 --link=1gbit   (root)\n"
    "  psring bench train";

struct BenchFlags {
  std::vector<std::string> operations;
  std::string sizes = "1KB,10KB,100KB,1MB,10MB,100MB";
  std::string ranks = "2";
  int servers = 1;
  int64_t iterations = 20;
  int64_t warmup = 3;
  int rounds = 2;
  std::string optimizer = "sgd";
  std::string peers = "auto";
  int hosts = 0;
  std::string link = "1gbit";
  std::string placement = "colocated";
  std::string models = "mlp:784-2048-2048-10,lenet";
  std::string workers = "1,2";
  int64_t steps = 300;
  int repetitions = 3;
  double timeout_s = 1200;
  std::string out = ".";
  Binaries binaries;
};

// The flags as they are meant.
struct Plan {
  std::vector<int64_t> sizes;
  std::vector<int> ranks;
  std::vector<int> workers;
  std::vector<std::string> models;
  double link_bits_per_s = 0;
  Placement placement = Placement::kSeparate;
  int servers = 1;
  int servers_hosts = 0;  // beside the workers'
};

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

void AddFlags(CLI::App& app, BenchFlags& flags) {
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
  flags.binaries.AddFlags(app);
  app.footer(kExample);
}

// With the flag's name before what is wrong with its value.
absl::Status OfFlag(const char* flag, const absl::Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": ", std::string(status.message())));
}

absl::StatusOr<Plan> PlanHosts(const CLI::App& app, const BenchFlags& flags,
                               Plan plan) {
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
    plan.servers_hosts = flags.servers;
  }
  return plan;
}

absl::StatusOr<Plan> PlanOf(const CLI::App& app, const BenchFlags& flags) {
  Plan plan;
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

// One run of the program, in the order in which it happens.
class BenchRun {
 public:
  BenchRun(const BenchFlags& flags, Plan plan, const Cancellation& cancellation)
      : flags_(flags),
        plan_(std::move(plan)),
        stage_{.cancellation = cancellation,
               .placement = plan_.placement,
               .ps_binary = flags.binaries.ps,
               .worker_binary = flags.binaries.worker,
               .rank_binary = flags.binaries.rank,
               .optimizer = flags.optimizer,
               .timeout = absl::Seconds(flags.timeout_s)} {}

  // `results` holds what is known before; it is filled as far as this comes.
  absl::Status Measure(BenchResults* results) {
    auto dir = TempDir::Create();
    if (!dir.ok()) return dir.status();
    if (absl::Status s = MakeHosts(results); !s.ok()) return s;
    if (wants("allreduce") || wants("train")) FindPeers(dir->path(), results);
    if (absl::Status s = MeasureLinks(results); !s.ok()) return s;
    for (const char* operation : {"allreduce", "pushpull"}) {
      if (!wants(operation)) continue;
      if (absl::Status s = Sweep(operation, results); !s.ok()) return s;
    }
    return wants("train") ? Train(results) : absl::OkStatus();
  }

 private:
  bool wants(const char* operation) const {
    return absl::c_linear_search(flags_.operations, operation);
  }
  bool WantsPeer(const char* name) const {
    const std::vector<std::string> peers = absl::StrSplit(flags_.peers, ',');
    return flags_.peers == "auto" || absl::c_linear_search(peers, name);
  }

  absl::Status MakeHosts(BenchResults* results) {
    if (flags_.hosts == 0) return absl::OkStatus();
    auto hosts = Hosts::Create(flags_.hosts + plan_.servers_hosts,
                               plan_.link_bits_per_s);
    if (!hosts.ok()) return hosts.status();
    hosts_ = *std::move(hosts);
    stage_.hosts = hosts_.get();
    results->hosts = hosts_->count();
    results->link_bits_per_s = plan_.link_bits_per_s;
    return absl::OkStatus();
  }

  void FindPeers(const std::string& directory, BenchResults* results) {
    if (WantsPeer(kOpenMpi) && wants("allreduce")) {
      std::string version;
      auto openmpi =
          stage_.hosts == nullptr
              ? MakeOpenMpi(stage_, directory, &version)
              : absl::NotFoundError("it is not measured with --hosts");
      AddPeer(kOpenMpi, std::move(openmpi), version, results);
    }
    if (!WantsPeer(kGloo)) return;
    const auto python = FindGlooPython();
    if (!python.ok()) {
      return AddPeer(kGloo, python.status(), "", results);
    }
    python_ = *python;
    AddPeer(
        kGloo, MakeGloo(stage_, *python, directory),
        absl::StrCat("torch ", python->torch_version, " of ", python->python),
        results);
  }

  void AddPeer(const char* name,
               absl::StatusOr<std::unique_ptr<Contender>> peer,
               const std::string& detail, BenchResults* results) {
    results->peers.push_back(
        {name, peer.ok(),
         peer.ok() ? detail : std::string(peer.status().message())});
    if (peer.ok()) peers_.push_back(*std::move(peer));
  }

  // Limits on several hosts need them too.
  absl::Status MeasureLinks(BenchResults* results) {
    if (!wants("links") && stage_.hosts == nullptr) return absl::OkStatus();
    auto links = RunLinks(stage_, plan_.ranks.back(), flags_.iterations);
    if (!links.ok()) {
      return absl::Status(
          links.status().code(),
          absl::StrCat("links: ", std::string(links.status().message())));
    }
    results->links = *std::move(links);
    return absl::OkStatus();
  }

  absl::Status Sweep(const std::string& operation, BenchResults* results) {
    SweepOptions options;
    options.operation = operation;
    options.ranks = plan_.ranks;
    options.sizes = plan_.sizes;
    options.servers = plan_.servers;
    options.iterations = flags_.iterations;
    options.warmup = flags_.warmup;
    options.rounds = flags_.rounds;
    options.link_bits_per_s =
        stage_.hosts == nullptr ? 0 : SlowestLink(results->links);
    options.on_point = [](const Point& point) {
      std::cerr << Describe(point) << std::endl;
    };
    for (const auto& peer : peers_) {
      if (operation == "allreduce") options.peers.push_back(peer.get());
    }
    auto points = RunSweep(stage_, options);
    if (!points.ok()) return points.status();
    absl::c_move(*points, std::back_inserter(results->points));
    return absl::OkStatus();
  }

  absl::Status Train(BenchResults* results) {
    TrainOptions options;
    options.models = plan_.models;
    options.workers = plan_.workers;
    options.servers = plan_.servers;
    options.steps = flags_.steps;
    options.repetitions = flags_.repetitions;
    options.python = python_;
    options.on_training = [](const Training& training) {
      std::cerr << Describe(training) << std::endl;
    };
    auto trainings = RunTrain(stage_, options);
    if (!trainings.ok()) return trainings.status();
    results->trainings = *std::move(trainings);
    return absl::OkStatus();
  }

  const BenchFlags& flags_;
  const Plan plan_;
  Stage stage_;
  std::unique_ptr<Hosts> hosts_;
  std::optional<GlooPython> python_;
  std::vector<std::unique_ptr<Contender>> peers_;
};

std::map<std::string, std::string> AllFlags(const CLI::App& app) {
  std::map<std::string, std::string> values;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() || option == app.get_help_ptr()) continue;
    values[option->get_name()] = option->count() > 0
                                     ? absl::StrJoin(option->results(), ",")
                                     : option->get_default_str();
  }
  return values;
}

BenchResults Describe(const CLI::App& app, const Args& args) {
  BenchResults results;
  results.command = absl::StrCat("psring bench ", absl::StrJoin(args, " "));
  results.created =
      absl::FormatTime("%Y-%m-%d %H:%M %Z", absl::Now(), absl::LocalTimeZone());
  results.commit = BuiltCommit();
  results.flags = AllFlags(app);
  results.machine = DescribeMachine();
  results.copy_kind = StreamCopyKind();
  return results;
}

absl::Status Report(const BenchResults& results, const std::string& out) {
  for (const auto& cells :
       {PointCells(results), LinkCells(results), TrainCells(results)}) {
    if (cells.size() > 1) std::cout << "\n" << TextTable(cells);
  }
  std::cout << "\n";
  for (const std::string& note : Notes(results)) {
    std::cout << "* " << note << "\n";
  }
  absl::Status s =
      WriteReportFile(out, kBenchJson, DumpJson(ToJson(results), 1) + "\n");
  if (!s.ok()) return s;
  s = WriteReportFile(out, kBenchHtml, RenderBenchHtml(results));
  if (!s.ok()) return s;
  const auto path = std::filesystem::absolute(out).lexically_normal();
  std::cout << "\nreport: " << (path / kBenchHtml).string() << std::endl;
  return s;
}

int Fail(const absl::Status& status, int exit_code = kExitFailed) {
  std::cerr << "psring bench: " << status.message() << std::endl;
  return exit_code;
}

}  // namespace

int RunBench(const Args& args) {
  CLI::App app(kDescription, "psring bench");
  BenchFlags flags;
  AddFlags(app, flags);
  if (auto code = ParseFlags(app, args)) return *code;
  auto plan = PlanOf(app, flags);
  if (!plan.ok()) return UsageError(app, std::string(plan.status().message()));
  if (auto s = CheckReportPath(flags.out, {kBenchHtml, kBenchJson}); !s.ok()) {
    return Fail(s);
  }
  BenchResults results = Describe(app, args);
  Cancellation cancellation;
  SignalWatcher signals(cancellation);
  absl::Status status =
      BenchRun(flags, *std::move(plan), cancellation).Measure(&results);
  if (signals.received() != 0) {
    return Fail(absl::CancelledError("interrupted; all processes have ended"),
                128 + signals.received());
  }
  if (status.ok()) status = Report(results, flags.out);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace psring
