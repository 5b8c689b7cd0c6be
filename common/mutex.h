// A mutex that can wait for a condition, as absl::Mutex can, made of the
// standard library's: the system's abseil is not compiled with ThreadSanitizer,
// which would take everything that absl::Mutex guards for a race.
#ifndef PSRING_COMMON_MUTEX_H_
#define PSRING_COMMON_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "common/clock.h"

namespace psring {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }

  // Whoever waits looks at its condition again.
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    changed_.notify_all();
    mutex_.unlock();
  }

  // Nothing has changed that anybody waits for.
  void UnlockQuietly() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

  // Held by the caller, as while `condition` is called; not held in between.
  template <typename Condition>
  void Await(const Condition& condition) {
    changed_.notify_all();  // the lock is given up here too
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    changed_.wait(lock, condition);
    lock.release();
  }

  // The same until a deadline; returns whether the condition holds.
  template <typename Condition>
  bool AwaitUntil(const Condition& condition, Time deadline) {
    changed_.notify_all();
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    bool holds = false;
    do {  // again where the process was stopped meanwhile
      holds = changed_.wait_until(lock, deadline.chrono(), condition);
    } while (!holds && Now() < deadline);
    lock.release();
    return holds;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(*mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace psring

#endif  // PSRING_COMMON_MUTEX_H_
