#include "python/capi/process.h"

#include <map>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "common/mutex.h"
#include "common/process/thread_limit.h"
#include "python/capi/psring.h"
#include "python/capi/script_gpu.h"
#include "python/capi/script_model.h"

namespace psring {
namespace {

Mutex process_mutex;
Process* process = nullptr;
bool forked = false;
// By their parameters: of sessions that have ended, whose memory may be in use.
std::map<const void*, std::unique_ptr<ScriptModel>>& left_models =
    *new std::map<const void*, std::unique_ptr<ScriptModel>>();
Mutex timeout_mutex;
// What the last call that waited in vain for others has said; empty: none.
std::string& last_timeout = *new std::string;

void SetLastTimeout(absl::string_view error) {
  MutexLock lock(&timeout_mutex);
  last_timeout = std::string(error);
}

// Whether a program ends because others did not come: its error is that, or
// quotes it.
bool IsOfTimeout(const std::string& error) {
  MutexLock lock(&timeout_mutex);
  return !last_timeout.empty() && absl::StrContains(error, last_timeout);
}

thread_local std::string last_error;
thread_local std::string last_text;

}  // namespace

int64_t StartToJoin(const char* options) {
  MutexLock lock(&process_mutex);
  if (forked) return Error(PSRING_INVALID, NotJoined());
  if (process != nullptr && process->session != nullptr) {
    return Error(PSRING_INVALID,
                 Invalid("psring is initialised already: call shutdown() "
                         "before a second init()"));
  }
  auto parsed = ParseSessionOptions(options);
  if (!parsed.ok()) return CodeOf(parsed.status());
  // A job that has ended leaves its cancellation behind.
  process = new Process();
  SetGivenUp(false);
  auto session = Session::Create(*std::move(parsed), process->cancellation);
  if (!session.ok()) return CodeOf(session.status());
  process->session = *std::move(session);
  return process->tasks.Start(WithoutResult([p = process] {
    const absl::Status joined =
        CatchNoThread([p] { return p->session->Join(); });
    if (joined.ok()) return joined;
    std::unique_ptr<Session> failed;  // another attempt may follow
    MutexLock forget(&process_mutex);
    failed = std::move(p->session);
    return joined;
  }));
}

int64_t StartToLeave(const std::string& error) {
  const Lease lease = JoinedProcess();
  if (!lease) return PSRING_INVALID;
  Process* p = lease.get();
  {
    MutexLock lock(&process_mutex);
    if (std::exchange(p->leaving, true)) {
      return Error(PSRING_INVALID, Invalid("this process is leaving already"));
    }
  }
  return p->tasks.Start(WithoutResult([p, why = error]() -> absl::Status {
    const absl::Status result = why.empty() ? absl::OkStatus()
                                : IsOfTimeout(why)
                                    ? absl::DeadlineExceededError(why)
                                    : absl::AbortedError(why);
    if (!result.ok()) SetGivenUp(true);
    const absl::Status ended = p->session->Leave(result);
    // Nothing that is on its way is waited for.
    if (!result.ok()) p->cancellation.Cancel(result);
    std::unique_ptr<Session> session;
    {
      MutexLock lock(&process_mutex);
      session = std::move(p->session);  // new calls find none
      if (p->calls > 0) {
        p->cancellation.Cancel(
            absl::AbortedError("this process has left the job"));
      }
      process_mutex.Await([p] { return p->calls == 0; });
    }
    for (auto& model : session->TakeModels()) LeaveModel(std::move(model));
    session.reset();  // ends the servers that live here
    return why.empty() ? ended : absl::OkStatus();
  }));
}

std::string CoordinatorOfProcess() {
  MutexLock lock(&process_mutex);
  if (process == nullptr || process->session == nullptr) return "";
  return process->session->coordinator();
}

std::string FailureOfProcess() {
  MutexLock lock(&process_mutex);
  if (process == nullptr) return "";
  return std::string(process->cancellation.status().message());
}

// Nothing is destroyed: threads that would have to be joined are the parent's,
// as are those that may have held a mutex.
void ForgetProcess() {
  new (&process_mutex) Mutex;
  new (&timeout_mutex) Mutex;
  forked = true;
  process = nullptr;
}

void LeaveModel(std::unique_ptr<ScriptModel> model) {
  const float* parameters = model->parameters();
  MutexLock lock(&process_mutex);
  left_models[parameters] = std::move(model);
}

int FreeLeftModel(const void* parameters) {
  std::unique_ptr<ScriptModel> model;
  {
    MutexLock lock(&process_mutex);
    const auto found = left_models.find(parameters);
    if (found == left_models.end()) {
      return Error(PSRING_INVALID,
                   Invalid("no model that is closed lies there"));
    }
    model = std::move(found->second);
    left_models.erase(found);
  }
  try {
    // The caller's current GPU stays what it is.
    std::thread([&model] { model.reset(); }).join();
  } catch (const std::system_error&) {  // no thread for it: here
  }
  return PSRING_OK;
}

Process* CurrentProcess() {
  MutexLock lock(&process_mutex);
  return process;
}

Lease JoinedProcess() {
  MutexLock lock(&process_mutex);
  if (process != nullptr && process->session != nullptr &&
      process->session->joined()) {
    ++process->calls;
    return Lease(process);
  }
  Error(PSRING_INVALID, NotJoined());
  return Lease();
}

Lease::~Lease() {
  if (process_ == nullptr) return;
  MutexLock lock(&process_mutex);
  --process_->calls;
}

int Error(int code, const absl::Status& status) {
  last_error = std::string(status.message());
  return code;
}

const char* LastError() { return last_error.c_str(); }

const char* Text(std::string text) {
  last_text = std::move(text);
  return last_text.c_str();
}

int CodeOf(const absl::Status& status) {
  if (status.ok()) return PSRING_OK;
  if (absl::IsDeadlineExceeded(status)) SetLastTimeout(status.message());
  const bool callers = status.code() == absl::StatusCode::kInvalidArgument ||
                       status.code() == absl::StatusCode::kNotFound;
  return Error(callers ? PSRING_INVALID : PSRING_ERROR, status);
}

int InterruptedOr(int code, const InterruptScope& interrupts) {
  return code != PSRING_OK && interrupts.interrupted() ? PSRING_INTERRUPTED
                                                       : code;
}

absl::Status Invalid(absl::string_view text) {
  return absl::InvalidArgumentError(text);
}

absl::Status NotJoined() {
  if (!forked && process != nullptr && process->session == nullptr &&
      !process->cancellation.status().ok()) {
    return process->cancellation.status();  // why the job has ended
  }
  return Invalid(
      forked ? "this is a child of fork: psring's job is its parent's. Start "
               "processes with psring run, or fork before init()"
             : "psring is not initialised: call init() first");
}

Tasks::Work WithoutResult(std::function<absl::Status()> work) {
  return [work = std::move(work)]() -> absl::StatusOr<std::string> {
    if (absl::Status s = work(); !s.ok()) return s;
    return std::string();
  };
}

}  // namespace psring
