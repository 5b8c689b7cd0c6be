#include "common/net/shared_counter.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "common/clock.h"

namespace psring {
namespace {

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// This thread's core and 1; 0 where the kernel does not tell.
uint32_t ThisCore() { return static_cast<uint32_t>(sched_getcpu() + 1); }

// Not FUTEX_PRIVATE: the word is another process's too.
void FutexWait(std::atomic<uint32_t>& word, uint32_t seen,
               absl::Duration limit) {
  const timespec timeout = absl::ToTimespec(limit);
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

// Sequentially consistent, as Await is: either Set sees the sleeper, or the
// sleeper sees the new count before it sleeps.
void SharedCounter::Set(uint32_t value) {
  core.store(ThisCore(), std::memory_order_relaxed);
  count.store(value, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(count);
}

bool SharedCounter::Await(uint32_t value, const SpinPolicy& policy,
                          absl::Duration limit) {
  // Who was last seen on this core can advance it only when it gets that. (The
  // kernel often wakes two that talk to each other on one core.)
  constexpr int kLooksAtCore = 16;
  for (int i = 0; i < policy.spins; ++i) {
    if (Reached(value)) return true;
    if (i % kLooksAtCore == 0 &&
        core.load(std::memory_order_relaxed) == ThisCore()) {
      break;
    }
    Pause();
  }
  for (int i = 0; i < policy.yields; ++i) {
    if (Reached(value)) return true;
    sched_yield();
  }
  if (Reached(value)) return true;
  const Time end = Now() + limit;
  absl::Duration left = limit;
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  // A wake-up may come late, from a Set whose value an earlier wait has seen.
  while (left > absl::ZeroDuration()) {
    const uint32_t seen = count.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(seen - value) >= 0) break;
    FutexWait(count, seen, left);
    left = end - Now();
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return Reached(value);
}

}  // namespace psring
