// What the threads of a process do, for its heartbeats: they work, or wait for
// others. One that works for long without progress hangs.
//
// The thread writes an Activity without a clock and without a lock; the
// heartbeat's thread looks at it once a second, so durations are as exact.
#ifndef PSRING_COMMON_CLUSTER_ACTIVITY_H_
#define PSRING_COMMON_CLUSTER_ACTIVITY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace psring {

class Activity {
 public:
  // From now on the thread is at `what`, a literal such as "computing"; it does
  // not need others for it. Said again, it means progress.
  void Work(const char* what) {
    // Before what it is about: whoever sees the news sees that they are new.
    count_.fetch_add(1, std::memory_order_relaxed);
    what_.store(what, std::memory_order_release);
  }
  // The thread waits for others, which is never its own fault. So does a thread
  // that has said nothing yet.
  void Wait() { Work(nullptr); }

 private:
  friend class ActivityBoard;
  friend class WaitingForOthers;

  std::atomic<const char*> what_ = nullptr;
  std::atomic<const char*> waits_at_ = nullptr;
  std::atomic<int> waiting_ = 0;     // scopes
  std::atomic<uint64_t> count_ = 1;  // of what was said
};

// The thread waits for others in this scope, at `what`, a literal such as "a
// step's gradients"; then it is again at what it was. Several threads may share
// an Activity: it waits as long as any of them does.
class WaitingForOthers {
 public:
  explicit WaitingForOthers(Activity& activity, const char* what = "the others")
      : activity_(activity) {
    activity_.count_.fetch_add(1, std::memory_order_relaxed);
    activity_.waits_at_.store(what, std::memory_order_relaxed);
    activity_.waiting_.fetch_add(1, std::memory_order_release);
  }
  ~WaitingForOthers() {
    activity_.count_.fetch_add(1, std::memory_order_relaxed);
    activity_.waiting_.fetch_sub(1, std::memory_order_release);
  }
  WaitingForOthers(const WaitingForOthers&) = delete;
  WaitingForOthers& operator=(const WaitingForOthers&) = delete;

 private:
  Activity& activity_;
};

// The activities of a process's threads.
class ActivityBoard {
 public:
  ActivityBoard();
  ~ActivityBoard();

  // The main thread's.
  Activity& own() { return *own_; }
  // Another thread's, for as long as the caller holds it. Any thread.
  std::shared_ptr<Activity> Add();

  // What the process does, as far as others care: where any thread works, the
  // one that has made no progress for longest.
  struct Report {
    const char* doing = nullptr;  // null: all wait for others
    absl::Duration still;         // how long without progress
    // What a thread waits for in a scope of WaitingForOthers, the one that has
    // waited for longest; null: none does.
    const char* waits_at = nullptr;
    absl::Duration waited;
  };
  // One thread, about once a second.
  Report Look(Time now);

  // What the threads of all boards of this process do, as far as they say:
  // "works: computing", "waits: a step's gradients". Any thread.
  static std::vector<std::string> TellAll();

 private:
  struct Watched {
    std::weak_ptr<Activity> activity;
    uint64_t count = 0;  // when it was looked at last
    Time since;          // no progress since then
  };

  void Tell(std::vector<std::string>& all);

  Mutex mutex_;
  std::vector<Watched> watched_ ABSL_GUARDED_BY(mutex_);
  const std::shared_ptr<Activity> own_ = Add();
};

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_ACTIVITY_H_
