#include "ps/step_gate.h"

#include <algorithm>
#include <limits>

namespace psring {

StepGate::StepGate(proto::Sync sync, int64_t staleness, int num_workers,
                   int64_t first_step)
    : bound_(sync == proto::BSP   ? 0
             : sync == proto::SSP ? staleness
                                  : std::numeric_limits<int64_t>::max()),
      clocks_(num_workers, first_step),
      waiting_(num_workers, false) {}

StepGate::Verdict StepGate::OnPush(int worker, int64_t step) {
  if (step < clocks_[worker]) return Verdict::kRepeat;
  // A worker that waits has no business with the next step yet.
  if (step > clocks_[worker] || waiting_[worker]) return Verdict::kTooEarly;
  ++clocks_[worker];
  waiting_[worker] = true;
  return Verdict::kAccept;
}

std::vector<int> StepGate::Release() {
  const int64_t slowest = MinClock();
  std::vector<int> released;
  for (int w = 0; w < static_cast<int>(clocks_.size()); ++w) {
    if (!waiting_[w] || clocks_[w] - slowest > bound_) continue;
    waiting_[w] = false;
    released.push_back(w);
  }
  return released;
}

bool StepGate::anyone_waiting() const {
  return std::find(waiting_.begin(), waiting_.end(), true) != waiting_.end();
}

std::vector<int> StepGate::Awaited() const {
  const int64_t slowest = MinClock();
  std::vector<int> awaited;
  for (int w = 0; w < static_cast<int>(clocks_.size()); ++w) {
    if (clocks_[w] == slowest) awaited.push_back(w);
  }
  return awaited;
}

int64_t StepGate::MinClock() const {
  return *std::min_element(clocks_.begin(), clocks_.end());
}

}  // namespace psring
