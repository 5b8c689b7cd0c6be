// Runs what a step sends, such as a ring's collectives, one after the other in
// the order in which it is posted.
//
// On a thread of its own, as a ring's bytes move only while every rank takes
// part and the trainer's thread is busy with backward. A caller that waits runs
// what nobody has begun with itself: to wake another thread and to be woken by
// it takes as long as a small collective. Where the host has no core for such a
// thread, the caller's runs all of them, in Await.
#ifndef PSRING_COMMON_EXCHANGE_SERIAL_RUNNER_H_
#define PSRING_COMMON_EXCHANGE_SERIAL_RUNNER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/mutex.h"

namespace psring {

// One thread, the caller's, makes all calls, or several do, one at a time.
class SerialRunner {
 public:
  // Has a deadline of its own, and so have all waits for it.
  using Task = std::function<absl::Status()>;
  enum class Where { kOwnThread, kCallersThread };

  // `at_end` is called last on the runner's own thread.
  explicit SerialRunner(Where where, std::function<void()> at_end = {});
  // Skips what is queued. Blocks for the task under way and for `at_end`.
  ~SerialRunner();

  // Queues a task and returns its number: 1, 2, 3, ... Does not block.
  int64_t Post(Task task);

  // Blocks until this task and all before it are over. The first error of any
  // task so far; nothing is run after it.
  absl::Status Await(int64_t number);

  // Posts and awaits, on the caller's thread where nothing is ahead of it.
  absl::Status Run(absl::FunctionRef<absl::Status()> task);

 private:
  void Loop();
  // The first task of the queue; the lock is given up while it runs.
  void RunNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // On the caller's thread.
  void UnlockAfterTask() ABSL_UNLOCK_FUNCTION(mutex_);
  // Nobody runs a task, and there is one.
  bool due() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !running_ && !tasks_.empty();
  }

  const std::function<void()> at_end_;
  Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  int64_t num_posted_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_over_ ABSL_GUARDED_BY(mutex_) = 0;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // a task, on any thread
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // none: tasks run in Await
};

}  // namespace psring

#endif  // PSRING_COMMON_EXCHANGE_SERIAL_RUNNER_H_
