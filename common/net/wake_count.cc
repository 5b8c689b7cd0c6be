#include "common/net/wake_count.h"

#include <sched.h>

#include <algorithm>

namespace psring {
namespace {

// Waits that are longer begin asleep.
constexpr absl::Duration kShort = absl::Microseconds(200);
// One long wait, as for a checkpoint, is forgotten in a few short ones.
constexpr absl::Duration kLong = absl::Microseconds(800);

}  // namespace

// Sequentially consistent, as Sleep is: either this sees the sleeper, or the
// sleeper sees the new count before it sleeps.
bool WakeCount::Add(int64_t more) {
  const int64_t now = counted.fetch_add(more, std::memory_order_seq_cst) + more;
  int64_t at = wake_at.load(std::memory_order_seq_cst);
  return at != 0 && now >= at && wake_at.compare_exchange_strong(at, 0);
}

bool WakeCount::PrepareToSleep(int64_t wanted) {
  wake_at.store(wanted, std::memory_order_seq_cst);
  if (counted.load(std::memory_order_seq_cst) < wanted) return true;
  WakeUp();
  return false;
}

absl::Duration AwakeWait::limit() const {
  return usual_ < kShort ? kShort : least_;
}

void AwakeWait::Record(absl::Duration wait) {
  wait = std::min(wait, kLong);
  usual_ = std::min(usual_, kLong);
  usual_ += (wait - usual_) / 4;
}

bool AwakeWait::Reaches(const WakeCount& count, int64_t wanted) {
  begin_ = Now();
  const Time end = begin_ + limit();
  while (count.count() < wanted) {
    if (Now() >= end) return false;
    sched_yield();
  }
  Record(Now() - begin_);
  return true;
}

void AwakeWait::OnWoken() { Record(Now() - begin_); }

}  // namespace psring
