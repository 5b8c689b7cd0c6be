#include "lab/predict/predict_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/layout.h"
#include "common/model/shard_cut.h"
#include "lab/predict/compute.h"
#include "lab/predict/ps_simulator.h"
#include "lab/predict/ring_simulator.h"

namespace psring {
namespace {

constexpr int kClasses = 8;
// Of each of so many, beside the others, so that a step overlaps as it does.
constexpr int64_t kFewestBuckets = 16;
constexpr int64_t kLastBuckets = 8;
// Between workers and servers.
constexpr int64_t kManyFlows = 256;
constexpr int kStepsOfMany = 5;

// `count` hosts in at most `most` runs of near-equal length: bounds.
std::vector<int> CutEvenly(int count, int most) {
  const int parts = std::min(count, most);
  std::vector<int> bounds;
  for (int i = 0; i <= parts; ++i) {
    bounds.push_back(parts == 0 ? 0
                                : static_cast<int>(int64_t{count} * i / parts));
  }
  return bounds;
}

// The slowest worker alone, the others in runs of like speed, each as slow as
// its slowest.
std::vector<HostClass> WorkerClasses(std::vector<double> compute, int most) {
  const int workers = static_cast<int>(compute.size());
  if (workers > most) std::sort(compute.begin(), compute.end());
  const bool alone = workers > most && compute.front() < compute.back();
  const int others = alone ? workers - 1 : workers;
  const std::vector<int> bounds = CutEvenly(others, alone ? most - 1 : most);
  std::vector<HostClass> classes;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    classes.push_back(
        {bounds[i + 1] - bounds[i], true, compute[bounds[i + 1] - 1]});
  }
  if (alone) classes.push_back({1, true, compute.back()});
  return classes;
}

// Gives the first `servers` hosts, or all, a server each. How many those are.
int PutServersOn(std::vector<HostClass>& classes, int servers) {
  int placed = 0;
  for (size_t i = 0; i < classes.size() && placed < servers; ++i) {
    if (const int more = servers - placed; classes[i].count > more) {
      HostClass rest = classes[i];
      rest.count -= more;
      classes[i].count = more;
      classes.insert(classes.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                     rest);
    }
    classes[i].server = true;
    placed += classes[i].count;
  }
  return placed;
}

// About `most` buckets instead, of runs of neighbours; those that leave last,
// of which backward hides the least, stay as they are.
std::vector<int64_t> JoinNeighbours(const std::vector<int64_t>& buckets,
                                    int64_t most) {
  const auto size = static_cast<int64_t>(buckets.size());
  most = std::max(most, kFewestBuckets);
  if (size <= most) return buckets;
  const int64_t runs = most - kLastBuckets;
  const int64_t run = (size - kLastBuckets + runs - 1) / runs;
  std::vector<int64_t> joined;
  for (int64_t i = 0; i < size; ++i) {
    const bool begins = i % run == 0 || i >= size - kLastBuckets;
    if (begins) joined.push_back(0);
    joined.back() += buckets[static_cast<size_t>(i)];
  }
  return joined;
}

bool ComputeTimesDiffer(const Workload& workload) {
  return workload.compute_s.size() > 1 ||
         (workload.compute_s.size() == 1 && workload.compute_s[0].size() > 1);
}

// How many simulations an exchange takes by itself: how flows share links is
// drawn.
int NumExchanges(const Hardware& hardware, const Topology& topology,
                 const Effort& effort) {
  if (topology.kind == TopologyKind::kRing || hardware.fair_flows) return 1;
  // Where flows are many, no single one decides.
  const bool many =
      int64_t{topology.workers} * topology.num_servers() > kManyFlows;
  return many ? std::min(effort.steps, kStepsOfMany) : effort.steps;
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

class StepPredictor {
 public:
  StepPredictor(const Hardware& hardware, const Workload& workload,
                const Topology& topology, const Effort& effort,
                const Cancellation* cancellation)
      : hardware_(hardware),
        workload_(workload),
        topology_(topology),
        cancellation_(cancellation) {
    if (topology.kind == TopologyKind::kRing) {
      coarse_ = RingMessages(workload, topology.workers) > effort.max_messages;
    } else {
      servers_ =
          ServersFor(BucketsOf(workload.buckets), topology.num_servers());
      CoarsenPs(effort.max_messages);
    }
  }

  bool coarse() const { return coarse_; }

  double Step(std::vector<double> compute, uint64_t seed) const {
    if (topology_.kind == TopologyKind::kPs) {
      return SimulatePs(hardware_, workload_, topology_,
                        Classes(std::move(compute)), pieces_at_once_, seed,
                        cancellation_);
    }
    const auto [first, last] =
        std::minmax_element(compute.begin(), compute.end());
    if (coarse_) compute = {*last};
    return SimulateRing(hardware_, workload_, topology_.workers, compute,
                        cancellation_);
  }

 private:
  // Of a server's, of the average bucket.
  int64_t ElementsOfAPart() const {
    const auto buckets = static_cast<int64_t>(workload_.buckets.size());
    return NumElements(workload_) / buckets / std::max(servers_, 1);
  }

  void CoarsenPs(int64_t max_messages) {
    const auto workers = [&] {
      return std::min(topology_.workers, most_classes_);
    };
    const auto servers = [&] {
      return (topology_.colocated ? workers() : 0) +
             std::min(topology_.server_hosts, most_classes_);
    };
    const auto messages = [&] {
      return PsMessages(workload_, hardware_, workers(), servers(),
                        pieces_at_once_);
    };
    if (messages() <= max_messages) return;
    coarse_ = true;
    most_classes_ = kClasses;
    // Each bucket is a message at least, between each two of them. (Of small
    // ones, the window of pieces decides how long they take.)
    const int64_t pairs = int64_t{2} * workers() * servers();
    if (ElementsOfAPart() >= kWindowPieces * kPieceElements) {
      workload_.buckets = JoinNeighbours(
          workload_.buckets, max_messages / 2 / pairs - hardware_.shards);
    }
    while (messages() > max_messages &&
           kPieceElements * pieces_at_once_ < ElementsOfAPart()) {
      pieces_at_once_ *= 2;
    }
  }

  std::vector<HostClass> Classes(std::vector<double> compute) const {
    std::vector<HostClass> classes =
        WorkerClasses(std::move(compute), most_classes_);
    int servers = servers_;
    if (topology_.colocated) servers -= PutServersOn(classes, servers);
    const std::vector<int> bounds =
        CutEvenly(std::min(servers, topology_.server_hosts), most_classes_);
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      classes.push_back({bounds[i + 1] - bounds[i], false, 0, true});
    }
    return classes;
  }

  const Hardware& hardware_;
  Workload workload_;
  const Topology& topology_;
  const Cancellation* const cancellation_;
  int servers_ = 0;  // that have a part of the model
  bool coarse_ = false;
  int most_classes_ = 1 << 30;
  int pieces_at_once_ = 1;
};

}  // namespace

Prediction PredictStep(const Hardware& hardware, const Workload& workload,
                       const Topology& topology, const Effort& effort,
                       const Cancellation* cancellation) {
  const StepPredictor predictor(hardware, workload, topology, effort,
                                cancellation);
  std::mt19937_64 random(effort.seed);
  const int num_exchanges = NumExchanges(hardware, topology, effort);
  const int num_steps =
      ComputeTimesDiffer(workload) ? effort.steps : num_exchanges;
  std::vector<double> compute, steps, exchanges;
  for (int i = 0; i < num_steps; ++i) {
    if (cancellation != nullptr && !cancellation->status().ok()) return {};
    const std::vector<double> drawn =
        DrawComputeTimes(workload, topology.workers, random);
    compute.push_back(Mean(drawn));
    steps.push_back(predictor.Step(drawn, random()));
  }
  const std::vector<double> none(topology.workers, 0);
  for (int i = 0; i < num_exchanges; ++i) {
    if (cancellation != nullptr && !cancellation->status().ok()) return {};
    exchanges.push_back(predictor.Step(none, random()));
  }
  Prediction prediction;
  prediction.topology = topology;
  prediction.compute_s = Mean(compute);
  prediction.exchange_s = Mean(exchanges);
  prediction.step_s = Mean(steps);
  std::sort(steps.begin(), steps.end());
  prediction.p99_s = steps[static_cast<size_t>(
      std::ceil(0.99 * static_cast<double>(steps.size())) - 1)];
  prediction.coarse = predictor.coarse();
  return prediction;
}

std::vector<Topology> Candidates(int workers, const std::vector<int>& servers) {
  std::vector<Topology> candidates = {{TopologyKind::kRing, workers}};
  for (const int hosts : servers) {
    candidates.push_back({TopologyKind::kPs, workers, hosts, false});
  }
  candidates.push_back({TopologyKind::kPs, workers, 0, true});
  for (const int hosts : servers) {
    if (hosts >= workers) continue;  // they serve better by themselves
    candidates.push_back({TopologyKind::kPs, workers, hosts, true});
  }
  return candidates;
}

std::vector<int> AutoServers(int workers) {
  std::vector<int> servers;
  for (int s = 1; s < workers; s *= 2) servers.push_back(s);
  servers.push_back(workers);
  return servers;
}

std::string Describe(const Topology& topology) {
  if (topology.kind == TopologyKind::kRing) return "ring";
  if (!topology.colocated) {
    return absl::StrCat("ps, ", topology.server_hosts,
                        topology.server_hosts == 1 ? " server" : " servers");
  }
  const std::string all = "ps, a server on every host";
  return topology.server_hosts == 0
             ? all
             : absl::StrCat(all, " + ", topology.server_hosts);
}

}  // namespace psring
