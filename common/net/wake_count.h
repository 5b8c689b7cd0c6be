// A count in shared memory that wakes its owner when it has reached a number,
// and not before: the processes that count make no system call for what the
// owner need not look at yet, nor while it is awake, and only one of them wakes
// it. The owner sleeps on a Doorbell, beside whatever else it waits for.
#ifndef PSRING_COMMON_NET_WAKE_COUNT_H_
#define PSRING_COMMON_NET_WAKE_COUNT_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

// Zeroed memory is a count of 0 whose owner is awake. What was written before
// Add is seen by the owner once it has seen the count.
struct alignas(64) WakeCount {
  // Whoever counts. True: it is this caller who rings the owner's doorbell.
  bool Add(int64_t more);

  // The rest is the owner's.
  int64_t count() const { return counted.load(std::memory_order_acquire); }
  // From now on the Add that reaches `wanted` rings. False: it has been
  // reached, there is nothing to wait for.
  bool PrepareToSleep(int64_t wanted);
  void WakeUp() { wake_at.store(0, std::memory_order_relaxed); }

  std::atomic<int64_t> counted;
  std::atomic<int64_t> wake_at;  // 0: the owner is awake
};

static_assert(std::atomic<int64_t>::is_always_lock_free);

// How its owner waits for a count: awake for a moment, in which other processes
// may have its core, before it sleeps. To sleep and to be woken takes tens of
// microseconds where that core falls idle meanwhile. So it stays awake for as
// long as its waits have taken of late, where they were short.
class AwakeWait {
 public:
  // `has_core`: no process that runs has to wait for its core.
  explicit AwakeWait(bool has_core = false)
      : least_(has_core ? kSoon : absl::ZeroDuration()) {}

  // Whether `count` is about to be as far: it is when this returns true.
  bool Reaches(const WakeCount& count, int64_t wanted);
  // It was not, and the owner has slept: the wait is over.
  void OnWoken();

  // How long the next one stays awake.
  absl::Duration limit() const;
  // What OnWoken does, with how long the wait took.
  void Record(absl::Duration wait);

 private:
  // What sleeping and being woken takes, or somewhat more.
  static constexpr absl::Duration kSoon = absl::Microseconds(20);

  const absl::Duration least_;
  absl::Duration usual_ = absl::InfiniteDuration();  // the mean of late waits
  Time begin_ = Time::InfinitePast();                // of this wait
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_WAKE_COUNT_H_
