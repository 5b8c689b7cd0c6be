// What is under way for a caller in another language: each has a handle, is
// waited for a little at a time, and leaves a result behind.
#ifndef PSRING_PYTHON_CAPI_TASKS_H_
#define PSRING_PYTHON_CAPI_TASKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace psring {

// Any thread may call. Blocking work runs on a thread of its own.
class Tasks {
 public:
  using Handle = int64_t;
  // Its result, in bytes.
  using Work = std::function<absl::StatusOr<std::string>()>;

  Tasks() = default;
  // Joins all threads: their work has been cancelled, or ends by its deadlines.
  ~Tasks();

  // Starts `work`. A handle is above 0. Where the system has no thread for it,
  // or for those that it starts, its result is RESOURCE_EXHAUSTED.
  Handle Start(Work work);

  // Blocks until the work is done, at most for `timeout`: nothing while it is
  // not. NOT_FOUND where there is no such handle.
  absl::StatusOr<std::optional<absl::Status>> Wait(Handle handle,
                                                   absl::Duration timeout);

  // Of work that is done. NOT_FOUND, FAILED_PRECONDITION where it is not.
  absl::StatusOr<std::string> Result(Handle handle);

  // Forgets the handle. Work that is not done goes on, unheard.
  void Release(Handle handle);

 private:
  struct Task {
    std::thread thread;
    std::optional<absl::StatusOr<std::string>> result;
    bool released = false;
  };

  // Not where its thread could not be started.
  static void Join(Task& task);
  void JoinEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::map<Handle, std::shared_ptr<Task>> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace psring

#endif  // PSRING_PYTHON_CAPI_TASKS_H_
