// A counter in shared memory that other processes wait for.
//
// Whoever waits looks at it for a moment, as the change is mostly near, then
// sleeps in the kernel (futex) so that more processes than cores do not starve
// each other. Whoever advances it enters the kernel only when somebody sleeps.
#ifndef PSRING_COMMON_NET_SHARED_COUNTER_H_
#define PSRING_COMMON_NET_SHARED_COUNTER_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace psring {

// How long a wait looks before it sleeps.
struct SpinPolicy {
  // Looks with a pause between them; none where whoever advanced the counter
  // last was on this core, which it then needs.
  int spins = 0;
  // Then looks after giving up the core.
  int yields = 0;
};

// Zeroed memory is a counter at 0. Counts wrap: less than 2^31 apart, they
// compare. One thread advances it.
struct alignas(64) SharedCounter {
  // Everything written before is seen by whoever sees the new value.
  void Set(uint32_t value);

  bool Reached(uint32_t value) const {
    return static_cast<int32_t>(count.load(std::memory_order_acquire) -
                                value) >= 0;
  }

  // Blocks until Reached(value), at most for about `limit`; returns Reached.
  bool Await(uint32_t value, const SpinPolicy& policy, absl::Duration limit);

  std::atomic<uint32_t> count;
  std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> core;  // that it was advanced on last, and 1
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace psring

#endif  // PSRING_COMMON_NET_SHARED_COUNTER_H_
