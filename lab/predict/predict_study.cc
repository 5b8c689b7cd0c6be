#include "lab/predict/predict_study.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/host_cores.h"
#include "lab/host/units.h"

namespace psring {
namespace {

constexpr double kAsGood = 1.02;

int AllHosts(const Prediction& prediction) {
  return prediction.topology.workers + prediction.topology.server_hosts;
}

std::string Percent(double part) {
  return absl::StrFormat("%.0f%%", part * 100);
}

// The ring, servers of their own, a server on every host, those with more.
int KindOf(const Topology& topology) {
  if (topology.kind == TopologyKind::kRing) return 0;
  return !topology.colocated ? 1 : topology.server_hosts == 0 ? 2 : 3;
}

}  // namespace

absl::StatusOr<ScalePredictions> PredictScale(
    const Hardware& hardware, const Workload& workload, int hosts,
    const std::vector<int>& servers, const Effort& effort,
    const Cancellation& cancellation) {
  ScalePredictions scale;
  scale.hosts = hosts;
  const std::vector<Topology> topologies =
      Candidates(hosts, servers.empty() ? AutoServers(hosts) : servers);
  scale.all.resize(topologies.size());
  std::atomic<size_t> next = 0;
  const auto predict = [&] {
    for (size_t i = next++; i < topologies.size(); i = next++) {
      scale.all[i] =
          PredictStep(hardware, workload, topologies[i], effort, &cancellation);
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < HostCores(); ++i) others.emplace_back(predict);
    predict();
  }
  if (absl::Status s = cancellation.status(); !s.ok()) return s;
  scale.best = BestOf(scale.all);
  return scale;
}

size_t BestOf(const std::vector<Prediction>& all) {
  const auto fastest = std::min_element(
      all.begin(), all.end(), [](const Prediction& a, const Prediction& b) {
        return a.step_s < b.step_s;
      });
  size_t best = static_cast<size_t>(fastest - all.begin());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].step_s > fastest->step_s * kAsGood) continue;
    const int more = AllHosts(all[i]) - AllHosts(all[best]);
    if (more < 0 || (more == 0 && all[i].step_s < all[best].step_s)) best = i;
  }
  return best;
}

// By itself, the kind of the best of all may have another best one, as that
// need not be the fastest of all.
std::vector<size_t> BestOfEachKind(const ScalePredictions& scale) {
  std::map<int, std::vector<size_t>> kinds;
  for (size_t i = 0; i < scale.all.size(); ++i) {
    kinds[KindOf(scale.all[i].topology)].push_back(i);
  }
  std::vector<size_t> best;
  for (const auto& [kind, members] : kinds) {
    if (kind == KindOf(scale.all[scale.best].topology)) {
      best.push_back(scale.best);
      continue;
    }
    std::vector<Prediction> predictions;
    for (const size_t i : members) predictions.push_back(scale.all[i]);
    best.push_back(members[BestOf(predictions)]);
  }
  return best;
}

std::vector<std::vector<std::string>> PredictCells(const PredictStudy& study) {
  std::vector<std::vector<std::string>> cells = {{"hosts", "topology", "step",
                                                  "p99", "compute / step",
                                                  "exchange by itself", ""}};
  for (const ScalePredictions& scale : study.scales) {
    std::vector<size_t> shown(scale.all.size());
    std::iota(shown.begin(), shown.end(), 0);
    if (study.auto_servers) shown = BestOfEachKind(scale);
    for (const size_t i : shown) {
      const Prediction& p = scale.all[i];
      cells.push_back({absl::StrCat(scale.hosts), Describe(p.topology),
                       FormatTime(p.step_s), FormatTime(p.p99_s),
                       Percent(p.efficiency()), FormatTime(p.exchange_s),
                       i == scale.best ? "best" : ""});
    }
  }
  return cells;
}

std::vector<std::string> PredictVerdicts(const PredictStudy& study) {
  std::vector<std::string> verdicts;
  for (const ScalePredictions& scale : study.scales) {
    const Prediction& best = scale.all[scale.best];
    const Prediction& ring = scale.all.front();
    std::string verdict =
        absl::StrFormat("%d hosts: %s, %s a step, of which %s is computing",
                        scale.hosts, Describe(best.topology),
                        FormatTime(best.step_s), Percent(best.efficiency()));
    const bool is_fastest = std::all_of(
        scale.all.begin(), scale.all.end(),
        [&](const Prediction& p) { return p.step_s >= best.step_s; });
    if (!is_fastest) {
      absl::StrAppend(&verdict,
                      " (the fastest is within 2% of it, with more hosts)");
    }
    if (scale.best != 0) {
      absl::StrAppend(&verdict,
                      absl::StrFormat("; the ring takes %.2f times as long",
                                      ring.step_s / best.step_s));
    }
    verdicts.push_back(verdict + ".");
  }
  return verdicts;
}

}  // namespace psring
