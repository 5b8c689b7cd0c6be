#include "python/capi/tasks.h"

#include <atomic>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/process/thread_limit.h"

namespace psring {
namespace {

absl::Status NoSuchHandle(Tasks::Handle handle) {
  return absl::NotFoundError(
      absl::StrCat("there is no operation with the handle ", handle));
}

}  // namespace

Tasks::~Tasks() {
  std::map<Handle, std::shared_ptr<Task>> tasks;
  {
    MutexLock lock(&mutex_);
    tasks.swap(tasks_);
  }
  for (auto& [handle, task] : tasks) Join(*task);
}

void Tasks::Join(Task& task) {
  if (task.thread.joinable()) task.thread.join();
}

// Threads of handles that nobody asks for any more.
void Tasks::JoinEnded() {
  for (auto task = tasks_.begin(); task != tasks_.end();) {
    if (!task->second->released || !task->second->result.has_value()) {
      ++task;
      continue;
    }
    Join(*task->second);
    task = tasks_.erase(task);
  }
}

Tasks::Handle Tasks::Start(Work work) {
  MutexLock lock(&mutex_);
  JoinEnded();
  static std::atomic<Handle> last = 0;  // no handle twice in a process
  const Handle handle = 2 * ++last;     // odd ones are the collectives'
  auto task = std::make_shared<Task>();
  tasks_[handle] = task;
  try {
    task->thread = std::thread([this, task, work = std::move(work)] {
      auto result = CatchNoThread(work);
      MutexLock done(&mutex_);
      task->result.emplace(std::move(result));
    });
  } catch (const std::system_error& e) {
    task->result.emplace(absl::ResourceExhaustedError(CannotStartThread(e)));
  }
  return handle;
}

absl::StatusOr<std::optional<absl::Status>> Tasks::Wait(
    Handle handle, absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const auto found = tasks_.find(handle);
  if (found == tasks_.end() || found->second->released) {
    return NoSuchHandle(handle);
  }
  const std::shared_ptr<Task> task = found->second;
  const auto done = [&task] { return task->result.has_value(); };
  if (!mutex_.AwaitUntil(done, Now() + timeout)) {
    return std::optional<absl::Status>();
  }
  return std::optional<absl::Status>(task->result->status());
}

absl::StatusOr<std::string> Tasks::Result(Handle handle) {
  MutexLock lock(&mutex_);
  const auto found = tasks_.find(handle);
  if (found == tasks_.end() || found->second->released) {
    return NoSuchHandle(handle);
  }
  if (!found->second->result.has_value()) {
    return absl::FailedPreconditionError("the operation is still under way");
  }
  return *found->second->result;
}

void Tasks::Release(Handle handle) {
  MutexLock lock(&mutex_);
  const auto found = tasks_.find(handle);
  if (found != tasks_.end()) found->second->released = true;
  JoinEnded();
}

}  // namespace psring
