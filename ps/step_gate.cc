#include "ps/step_gate.h"

#include <algorithm>
#include <limits>

namespace psring {

StepGate::StepGate(proto::Sync sync, int64_t staleness, int num_workers,
                   int64_t first_step, int backup_workers)
    : bsp_(sync == proto::BSP),
      bound_(sync == proto::SSP ? staleness
                                : std::numeric_limits<int64_t>::max()),
      may_skip_(bsp_ && backup_workers > 0),
      needed_(static_cast<size_t>(std::max(num_workers - backup_workers, 1))),
      open_(first_step),
      clocks_(num_workers, first_step),
      waiting_(num_workers, false) {}

StepGate::Verdict StepGate::OnPush(int worker, int64_t step) {
  if (step < clocks_[worker]) return Verdict::kRepeat;
  // A worker that waits has no business with the next step yet.
  if (waiting_[worker] || (step > clocks_[worker] && !may_skip_)) {
    return Verdict::kTooEarly;
  }
  clocks_[worker] = step + 1;
  if (bsp_ && step < open_) return Verdict::kLate;
  waiting_[worker] = true;
  in_line_.push_back(worker);
  return Verdict::kAccept;
}

std::vector<int> StepGate::Release() {
  const int64_t slowest = bsp_ ? 0 : MinClock();
  std::vector<int> released;
  for (int w : in_line_) {
    if (bsp_ && released.size() == needed_) break;
    const bool goes_on =
        bsp_ ? clocks_[w] == open_ + 1 : clocks_[w] - slowest <= bound_;
    if (goes_on) released.push_back(w);
  }
  if (bsp_ && released.size() < needed_) return {};
  if (bsp_) ++open_;
  StopWaiting(released);
  std::sort(released.begin(), released.end());
  return released;
}

std::vector<int> StepGate::ReleaseLate() {
  std::vector<int> late;
  for (int w : in_line_) {
    if (bsp_ && clocks_[w] <= open_) late.push_back(w);
  }
  StopWaiting(late);
  std::sort(late.begin(), late.end());
  return late;
}

void StepGate::StopWaiting(const std::vector<int>& workers) {
  for (int w : workers) waiting_[w] = false;
  std::erase_if(in_line_, [this](int w) { return !waiting_[w]; });
}

std::vector<int> StepGate::Awaited() const {
  const int64_t awaited = awaited_step();
  std::vector<int> workers;
  for (int w = 0; w < static_cast<int>(clocks_.size()); ++w) {
    if (clocks_[w] <= awaited) workers.push_back(w);
  }
  return workers;
}

int64_t StepGate::MinClock() const {
  return *std::min_element(clocks_.begin(), clocks_.end());
}

}  // namespace psring
