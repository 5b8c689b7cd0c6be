// What the process has of psring, and how the functions of psring.h tell of
// errors.
#ifndef PSRING_PYTHON_CAPI_PROCESS_H_
#define PSRING_PYTHON_CAPI_PROCESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/net/cancellation.h"
#include "python/capi/interrupts.h"
#include "python/capi/session.h"
#include "python/capi/tasks.h"

namespace psring {

// Never destroyed: a foreign program ends its threads in an order of its own.
struct Process {
  Cancellation cancellation;
  Tasks tasks;
  std::unique_ptr<Session> session;  // null before psring_join, after leaving
  int calls = 0;                     // that use the session
  bool leaving = false;
};

// Keeps the session of a process while a call uses it.
class Lease {
 public:
  Lease() = default;
  explicit Lease(Process* process) : process_(process) {}
  Lease(Lease&& other) noexcept
      : process_(std::exchange(other.process_, nullptr)) {}
  Lease& operator=(Lease&& other) = delete;
  ~Lease();

  explicit operator bool() const { return process_ != nullptr; }
  Process* operator->() const { return process_; }
  Process* get() const { return process_; }

 private:
  Process* process_ = nullptr;
};

// ---- The process's part in a job ----

// psring_join, psring_leave: their handles, or an error's code, with the error
// set.
int64_t StartToJoin(const char* options);
int64_t StartToLeave(const std::string& error);
// Where the coordinator of this process listens; "": it has none.
std::string CoordinatorOfProcess();
// Why its job has failed; "": it has not.
std::string FailureOfProcess();
// In a child of fork: the job is its parent's.
void ForgetProcess();
// Keeps the memory of a closed model for those who still use it.
void LeaveModel(std::unique_ptr<ScriptModel> model);
// Frees it, by its parameters: PSRING_OK, or an error's code, with the error
// set.
int FreeLeftModel(const void* parameters);

// Null before psring_join, and in a child of fork.
Process* CurrentProcess();
// The same, of a job that is complete; otherwise none, with the error set.
Lease JoinedProcess();

// ---- What the functions return ----

// Sets this thread's error and returns `code`.
int Error(int code, const absl::Status& status);
// PSRING_OK, or the error's code, with the error set.
int CodeOf(const absl::Status& status);

// This thread's error: the last that was set.
const char* LastError();
// `text` until this thread's next call of it.
const char* Text(std::string text);

// PSRING_INTERRUPTED where that is why the call has failed.
int InterruptedOr(int code, const InterruptScope& interrupts);

absl::Status Invalid(absl::string_view text);
absl::Status NotJoined();

// A task's, whose result is its status alone.
Tasks::Work WithoutResult(std::function<absl::Status()> work);

// Handles are even where a task stands behind them, odd where a collective
// does.
inline int64_t HandleOfCollective(int64_t collective) {
  return 2 * collective + 1;
}
inline bool IsCollective(int64_t handle) { return handle % 2 == 1; }
inline int64_t CollectiveOf(int64_t handle) { return handle / 2; }

}  // namespace psring

#endif  // PSRING_PYTHON_CAPI_PROCESS_H_
