#include "common/trace/step_times.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/optim/sync_policy.h"

namespace psring {
namespace {

constexpr double kNanosecond = 1e-9;

struct Arrival {
  int64_t time = 0;
  int worker = 0;
};

// The one that a step of this rule goes on with; nothing where nobody is waited
// for, or where somebody's arrival is not known.
std::optional<Arrival> Awaited(const std::vector<WorkerSteps>& workers,
                               const SyncRule& rule, int64_t step) {
  const SyncPolicy* policy = FindSyncPolicy(rule.sync);
  if (policy == nullptr || policy->lead == SyncPolicy::Lead::kUnlimited) {
    return std::nullopt;
  }
  std::vector<Arrival> arrivals;
  for (size_t w = 0; w < workers.size(); ++w) {
    const auto found = workers[w].find(step - rule.staleness);
    if (found == workers[w].end() || found->second.went_on == 0) continue;
    arrivals.push_back({found->second.arrived, static_cast<int>(w)});
  }
  const size_t needed = workers.size() - rule.backup_workers;
  // A backup worker's step may have been left out, nobody else's.
  if (arrivals.size() < needed || needed == 0) return std::nullopt;
  std::sort(arrivals.begin(), arrivals.end(),
            [](const Arrival& a, const Arrival& b) { return a.time < b.time; });
  return arrivals[needed - 1];
}

std::vector<HeldUp> LongestFirst(const std::map<std::string, HeldUp>& by_name) {
  std::vector<HeldUp> list;
  for (const auto& [who, held] : by_name) {
    list.push_back({who, held.steps, held.seconds});
  }
  std::stable_sort(
      list.begin(), list.end(),
      [](const HeldUp& a, const HeldUp& b) { return a.seconds > b.seconds; });
  return list;
}

void Count(std::map<std::string, HeldUp>& by_name, const std::string& who,
           double seconds) {
  if (seconds <= 0) return;
  HeldUp& held = by_name[who];
  ++held.steps;
  held.seconds += seconds;
}

}  // namespace

void WorkerTimes::Add(const WorkerTimes& more) {
  steps += more.steps;
  whole += more.whole;
  data += more.data;
  forward += more.forward;
  backward += more.backward;
  encode += more.encode;
  slow += more.slow;
  exposed += more.exposed;
  waiting += more.waiting;
  catch_up += more.catch_up;
}

Explanation Explain(const std::vector<WorkerSteps>& workers,
                    const SyncRule& rule) {
  Explanation result;
  std::map<std::string, HeldUp> late, servers;
  // Once for each step: it takes a look at all workers.
  std::map<int64_t, std::optional<Arrival>> awaited_at;
  for (const WorkerSteps& steps : workers) {
    WorkerTimes times;
    for (const auto& [number, step] : steps) {
      times.catch_up += step.catch_up * kNanosecond;
      if (step.whole == 0 || step.went_on == 0) continue;
      const auto [found, is_new] = awaited_at.try_emplace(number);
      if (is_new) found->second = Awaited(workers, rule, number);
      const std::optional<Arrival>& awaited = found->second;
      const int64_t waited =
          awaited.has_value()
              ? std::max<int64_t>(
                    std::min(awaited->time, step.went_on) - step.arrived, 0)
              : 0;
      const int64_t exposed = step.went_on - step.arrived - waited;
      times.Add({1, step.whole * kNanosecond, step.data * kNanosecond,
                 step.forward * kNanosecond, step.backward * kNanosecond,
                 step.encode * kNanosecond, step.slow * kNanosecond,
                 exposed * kNanosecond, waited * kNanosecond});
      if (awaited.has_value()) {
        Count(late, absl::StrCat("worker ", awaited->worker),
              waited * kNanosecond);
      }
      if (step.last_server >= 0) {
        Count(servers, absl::StrCat("ps ", step.last_server),
              exposed * kNanosecond);
      }
    }
    result.workers.push_back(times);
    result.total.Add(times);
  }
  result.late = LongestFirst(late);
  result.servers = LongestFirst(servers);
  return result;
}

}  // namespace psring
