#include "common/clock.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>

#include "common/stack_signal.h"

namespace psring {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(250);
// A thread that has not run for so long has been stopped, and all others too.
constexpr int64_t kStoppedNanos = 2'000'000'000;
// Of a process that nobody looks after, as it is a child of fork(): no moment
// is long after it.
constexpr int64_t kNeverStops = INT64_MAX;

class ProcessClock {
 public:
  int64_t Nanos() {
    while (true) {
      const int64_t stopped = stopped_.load(std::memory_order_acquire);
      const int64_t now = MonotonicNanos();
      const int64_t looked = looked_.load(std::memory_order_acquire);
      if (looked != kNeverStops && now - looked > kStoppedNanos) {
        Look();
      } else if (stopped_.load(std::memory_order_acquire) == stopped) {
        return now - stopped;
      }
    }
  }

  int64_t stopped() const { return stopped_.load(std::memory_order_acquire); }
  int64_t last_stop() const {
    return last_stop_.load(std::memory_order_relaxed);
  }

 private:
  // Every thread that sees `looked_` sees `stopped_` as it is since then.
  void Look() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int64_t now = MonotonicNanos();
    const int64_t since = now - looked_.load(std::memory_order_relaxed);
    if (!ticks_) {
      ticks_ = true;
      if (!StartTicking()) {
        looked_.store(kNeverStops, std::memory_order_release);
        return;
      }
    } else if (since > kStoppedNanos) {
      // Less than that: others may have read the clock since then.
      last_stop_.store(now - since + absl::ToInt64Nanoseconds(kTick) -
                           stopped_.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
      stopped_.fetch_add(since - absl::ToInt64Nanoseconds(kTick),
                         std::memory_order_release);
    }
    looked_.store(now, std::memory_order_release);
  }

  // The thread lives as long as the process, and leaves signals to the others:
  // they may all have blocked one that they wait for.
  bool StartTicking() {
    sigset_t others, before;
    sigfillset(&others);
    sigdelset(&others, StackSignal());
    pthread_sigmask(SIG_SETMASK, &others, &before);
    bool started = true;
    try {
      std::thread([this] {
        while (true) {
          const timespec tick = absl::ToTimespec(kTick);
          nanosleep(&tick, nullptr);
          Look();
        }
      }).detach();
    } catch (const std::system_error&) {
      started = false;  // no thread is left
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_atfork(nullptr, nullptr, AfterFork);
    return started;
  }

  static void AfterFork();

  std::atomic<int64_t> looked_ = 0;
  std::atomic<int64_t> stopped_ = 0;
  std::atomic<int64_t> last_stop_ = 0;
  std::mutex mutex_;
  bool ticks_ = false;
};

constinit ProcessClock process_clock;

// The thread has stayed with the parent.
void ProcessClock::AfterFork() {
  process_clock.looked_.store(kNeverStops, std::memory_order_release);
}

}  // namespace

int64_t MonotonicNanos() {
  return std::chrono::steady_clock::now().time_since_epoch() /
         std::chrono::nanoseconds(1);
}

int64_t NowNanos() { return process_clock.Nanos(); }

absl::Duration TimeStopped() {
  return absl::Nanoseconds(process_clock.stopped());
}

Time LastStop() { return Time::FromNanos(process_clock.last_stop()); }

}  // namespace psring
