#include "lab/bench/bench_run.h"

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "lab/bench/bench_cells.h"
#include "lab/bench/bench_progress.h"
#include "lab/bench/contender.h"
#include "lab/bench/link_bench.h"
#include "lab/bench/peers.h"
#include "lab/bench/sweep.h"
#include "lab/bench/train_bench.h"
#include "lab/host/hosts.h"
#include "lab/host/temp_dir.h"
#include "lab/host/terminal.h"

namespace psring {
namespace {

constexpr const char* kSwept[] = {"allreduce", "pushpull"};

// One thread's own. All references outlive it.
class BenchRun {
 public:
  BenchRun(const BenchOptions& options, const Cancellation& cancellation)
      : options_(options),
        stage_{.cancellation = cancellation,
               .placement = options.placement,
               .ps_binary = options.binaries.ps,
               .worker_binary = options.binaries.worker,
               .rank_binary = options.binaries.rank,
               .optimizer = options.optimizer,
               .security = options.security,
               .timeout = options.timeout},
        progress_(stderr, TerminalColumns(stderr)) {}

  absl::Status Measure(BenchResults* results);

 private:
  bool Wants(const char* operation) const {
    return absl::c_linear_search(options_.operations, operation);
  }
  bool WantsPeer(const char* name) const {
    return absl::c_linear_search(options_.peers, name);
  }
  bool WantsDdp() const {
    return Wants("train") && absl::c_linear_search(options_.modes, "ddp");
  }
  absl::Status MakeHosts(BenchResults* results);
  void FindPeers(const std::string& directory, BenchResults* results);
  void AddPeer(const char* operation, const char* name,
               absl::StatusOr<std::unique_ptr<Contender>> peer,
               const std::string& detail, BenchResults* results);
  absl::Status MeasureLinks(BenchResults* results);
  absl::Status Sweep(const std::string& operation, BenchResults* results);
  static void LeaveOut(const std::string& peer, const absl::Status& why,
                       BenchResults* results);
  TrainOptions TrainingOptions();
  absl::Status Train(BenchResults* results);

  const BenchOptions& options_;
  Stage stage_;
  std::unique_ptr<Hosts> hosts_;
  std::optional<absl::StatusOr<GlooPython>> python_;  // nothing: not wanted
  std::map<std::string, std::vector<std::unique_ptr<Contender>>>
      peers_;  // by operation
  BenchProgress progress_;
};

absl::Status BenchRun::Measure(BenchResults* results) {
  auto dir = TempDir::Create();
  if (!dir.ok()) return dir.status();
  if (absl::Status s = MakeHosts(results); !s.ok()) return s;
  results->hot = options_.hot;
  results->encrypted = options_.security.secret.has_value();
  FindPeers(dir->path(), results);
  if (WantsDdp() && !python_->ok() && options_.modes_named) {
    const absl::Status& why = python_->status();
    return absl::Status(why.code(),
                        absl::StrCat("--modes: ddp: ", why.message()));
  }
  if (absl::Status s = MeasureLinks(results); !s.ok()) return s;
  const auto points =
      static_cast<int>(options_.ranks.size() * options_.sizes.size());
  for (const char* operation : kSwept) {
    if (Wants(operation)) progress_.Expect(points);
  }
  if (Wants("train")) progress_.Expect(NumTrainings(TrainingOptions()));
  for (const char* operation : kSwept) {
    if (!Wants(operation)) continue;
    if (absl::Status s = Sweep(operation, results); !s.ok()) return s;
  }
  return Wants("train") ? Train(results) : absl::OkStatus();
}

absl::Status BenchRun::MakeHosts(BenchResults* results) {
  if (options_.hosts == 0) return absl::OkStatus();
  auto hosts = Hosts::Create(options_.hosts + options_.server_hosts,
                             options_.link_bits_per_s);
  if (!hosts.ok()) return hosts.status();
  hosts_ = *std::move(hosts);
  stage_.hosts = hosts_.get();
  results->hosts = hosts_->count();
  results->link_bits_per_s = options_.link_bits_per_s;
  return absl::OkStatus();
}

void BenchRun::FindPeers(const std::string& directory, BenchResults* results) {
  const auto on_one_host =
      absl::NotFoundError("it is not measured with --hosts");
  for (const char* name : {kOpenMpi, kIntelMpi, kOneCcl}) {
    if (!WantsPeer(name) || !Wants("allreduce")) continue;
    std::string version;
    auto peer = stage_.hosts == nullptr
                    ? MakeMpiPeer(name, stage_, directory, &version)
                    : on_one_host;
    AddPeer("allreduce", name, std::move(peer), version, results);
  }
  if (WantsPeer(kPsLite) && Wants("pushpull")) {
    AddPeer("pushpull", kPsLite,
            stage_.hosts == nullptr
                ? MakePsLite(stage_, options_.ps_lite, directory)
                : on_one_host,
            absl::StrCat("of ", options_.ps_lite), results);
  }
  const bool gloo = WantsPeer(kGloo) && Wants("allreduce");
  if (!gloo && !WantsDdp()) return;
  python_ = FindGlooPython();
  if (!gloo) return;
  const absl::StatusOr<GlooPython>& python = *python_;
  if (!python.ok()) {
    return AddPeer("allreduce", kGloo, python.status(), "", results);
  }
  AddPeer("allreduce", kGloo, MakeGloo(stage_, *python, directory),
          absl::StrCat("torch ", python->torch_version, " of ", python->python),
          results);
}

void BenchRun::AddPeer(const char* operation, const char* name,
                       absl::StatusOr<std::unique_ptr<Contender>> peer,
                       const std::string& detail, BenchResults* results) {
  results->peers.push_back(
      {name, peer.ok(),
       peer.ok() ? detail : std::string(peer.status().message())});
  if (peer.ok()) peers_[operation].push_back(*std::move(peer));
}

// Notes why. DDP is a peer that nobody has looked for.
void BenchRun::LeaveOut(const std::string& peer, const absl::Status& why,
                        BenchResults* results) {
  auto finding = absl::c_find_if(
      results->peers, [&](const PeerFinding& f) { return f.name == peer; });
  if (finding == results->peers.end()) {
    finding = results->peers.insert(
        finding, {peer, true, "torch's DistributedDataParallel"});
  }
  finding->failure = std::string(why.message());
}

// Limits on several hosts need them too.
absl::Status BenchRun::MeasureLinks(BenchResults* results) {
  if (!Wants("links") && stage_.hosts == nullptr) return absl::OkStatus();
  auto links = RunLinks(stage_, *absl::c_max_element(options_.ranks),
                        options_.iterations);
  if (!links.ok()) {
    return absl::Status(
        links.status().code(),
        absl::StrCat("links: ", std::string(links.status().message())));
  }
  results->links = *std::move(links);
  return absl::OkStatus();
}

absl::Status BenchRun::Sweep(const std::string& operation,
                             BenchResults* results) {
  SweepOptions options;
  options.operation = operation;
  options.ranks = options_.ranks;
  options.sizes = options_.sizes;
  options.servers = options_.servers;
  options.iterations = options_.iterations;
  options.warmup = options_.warmup;
  options.rounds = options_.rounds;
  options.hot = options_.hot;
  options.link_bits_per_s =
      stage_.hosts == nullptr ? 0 : SlowestLink(results->links);
  options.on_start = [&](const SweepPoint& point) {
    progress_.OnStart(NameOf(point), Now());
  };
  options.on_point = [&](const SweepPoint& point) {
    progress_.OnDone(Describe(point));
    results->points.push_back(point);
  };
  for (const auto& peer : peers_[operation]) {
    options.peers.push_back(peer.get());
  }
  options.leaves_out = [&](const std::string& peer, const absl::Status& why) {
    if (!options_.peers_named) LeaveOut(peer, why, results);
    return !options_.peers_named;
  };
  return RunSweep(stage_, options).status();
}

TrainOptions BenchRun::TrainingOptions() {
  TrainOptions options;
  options.models = options_.models;
  options.modes = options_.modes;
  options.precisions = options_.precisions;
  options.data = options_.data;
  options.batch_size = options_.batch_size;
  options.workers = options_.workers;
  options.servers = options_.servers;
  options.steps = options_.steps;
  options.repetitions = options_.repetitions;
  options.device = options_.device;
  if (python_.has_value() && python_->ok()) options.python = **python_;
  options.on_start = [&](const Training& training) {
    progress_.OnStart(NameOf(training), Now());
  };
  options.on_longer = [&](const absl::Status& why, int num_again) {
    progress_.Expect(num_again);
    progress_.Tell(absl::StrCat(std::string(why.message()),
                                ". All trainings of this model get them now"));
  };
  options.on_training = [&](const Training& training) {
    progress_.OnDone(Describe(training));
  };
  return options;
}

absl::Status BenchRun::Train(BenchResults* results) {
  TrainOptions options = TrainingOptions();
  if (WantsDdp() && !python_->ok()) {
    LeaveOut("ddp", python_->status(), results);
  }
  options.leaves_out_ddp = [&](const absl::Status& why) {
    if (!options_.modes_named) LeaveOut("ddp", why, results);
    return !options_.modes_named;
  };
  return RunTrain(stage_, options, &results->trainings);
}

}  // namespace

absl::Status RunBenchmarks(const BenchOptions& options,
                           const Cancellation& cancellation,
                           BenchResults* results) {
  return BenchRun(options, cancellation).Measure(results);
}

}  // namespace psring
