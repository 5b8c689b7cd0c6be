#include "ps/step_gate.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/optim/job_plan.h"
#include "common/optim/sync_policy.h"

namespace psring {
namespace {

// After every step.
constexpr int64_t kNoStep = std::numeric_limits<int64_t>::max();

}  // namespace

std::vector<int> StepGate::Awaited() const {
  const int64_t awaited = awaited_step();
  std::vector<int> workers;
  for (int w = 0; w < static_cast<int>(clocks_.size()); ++w) {
    if (clocks_[w] <= awaited) workers.push_back(w);
  }
  return workers;
}

StepGate::Verdict StepGate::Enter(int worker, int64_t step, bool may_skip) {
  if (step < clocks_[worker]) return Verdict::kRepeat;
  // A worker that waits has no business with the next step yet.
  if (waiting_[worker] || (step > clocks_[worker] && !may_skip) ||
      step == kNoStep) {
    return Verdict::kTooEarly;
  }
  clocks_[worker] = step + 1;
  waiting_[worker] = true;
  in_line_.push_back(worker);
  return Verdict::kAccept;
}

std::vector<int> StepGate::Leave(std::vector<int> workers) {
  for (int w : workers) waiting_[w] = false;
  std::erase_if(in_line_, [this](int w) { return !waiting_[w]; });
  std::sort(workers.begin(), workers.end());
  return workers;
}

int64_t StepGate::MinClock() const {
  return *std::min_element(clocks_.begin(), clocks_.end());
}

BarrierGate::BarrierGate(int num_workers, int64_t first_step,
                         int backup_workers, absl::Span<const int> silent)
    : StepGate(num_workers, first_step),
      needed_(static_cast<size_t>(std::max(
          num_workers - backup_workers - static_cast<int>(silent.size()), 1))),
      may_skip_(backup_workers > 0),
      open_(first_step) {
  for (const int w : silent) SetClock(w, kNoStep);
}

StepGate::Decision BarrierGate::OnPush(int worker, int64_t step) {
  Decision decision;
  decision.verdict = Enter(worker, step, may_skip_);
  if (decision.verdict != Verdict::kAccept) return decision;
  while (true) {
    std::vector<int> closing;
    for (int w : in_line()) {
      if (closing.size() == needed_) break;
      if (clock(w) == open_ + 1) closing.push_back(w);
    }
    if (closing.size() < needed_) break;
    ++open_;
    decision.released.push_back(Leave(std::move(closing)));
  }
  for (int w : in_line()) {
    if (clock(w) <= open_) decision.late.push_back(w);
  }
  decision.late = Leave(std::move(decision.late));
  return decision;
}

StepGate::Decision BoundGate::OnPush(int worker, int64_t step) {
  Decision decision;
  decision.verdict = Enter(worker, step, /*may_skip=*/false);
  if (decision.verdict != Verdict::kAccept) return decision;
  std::vector<int> released = ReleaseWithinBound();
  if (!released.empty()) decision.released.push_back(std::move(released));
  return decision;
}

std::vector<int> BoundGate::OnWorkerLeft(int worker) {
  Leave({worker});
  SetClock(worker, kNoStep);
  return ReleaseWithinBound();
}

std::vector<int> BoundGate::ReleaseWithinBound() {
  const int64_t slowest = MinClock();
  std::vector<int> released;
  for (int w : in_line()) {
    if (clock(w) - slowest <= max_lead_) released.push_back(w);
  }
  return Leave(std::move(released));
}

std::unique_ptr<StepGate> MakeStepGate(const proto::JobSpec& spec,
                                       int num_workers,
                                       absl::Span<const int> silent) {
  const SyncPolicy& policy = PolicyOf(spec);
  const int64_t first_step = FirstExchange(spec);
  if (policy.barrier) {
    return std::make_unique<BarrierGate>(num_workers, first_step,
                                         spec.backup_workers(), silent);
  }
  return std::make_unique<BoundGate>(num_workers, first_step,
                                     MaxLead(policy, spec.staleness()));
}

}  // namespace psring
