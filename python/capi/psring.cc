// psring.h but for its parts about collectives and models.
#include "python/capi/psring.h"

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gpu/device.h"
#include "python/capi/interrupts.h"
#include "python/capi/process.h"

using namespace psring;  // NOLINT: what follows is C's

namespace {

// Of nobody, where there is no job.
std::shared_ptr<Activity> ActivityOfJob() {
  const Lease p = JoinedProcess();
  return p ? p->session->activity() : std::make_shared<Activity>();
}

}  // namespace

extern "C" {

int psring_abi(void) { return PSRING_ABI; }

const char* psring_version(void) { return PSRING_VERSION; }

const char* psring_error(void) { return LastError(); }

int psring_cuda_built(void) { return BuiltWithCuda() ? 1 : 0; }

const char* psring_policies(void) { return Text(PoliciesAsJson()); }

int64_t psring_join(const char* options) { return StartToJoin(options); }

const char* psring_job(void) {
  const Lease p = JoinedProcess();
  return p ? Text(p->session->Describe().dump()) : nullptr;
}

const char* psring_coordinator(void) { return Text(CoordinatorOfProcess()); }

int64_t psring_leave(const char* error) { return StartToLeave(error); }

const char* psring_failure(void) { return Text(FailureOfProcess()); }

int psring_heed_stop(int heeds) {
  const Lease p = JoinedProcess();
  if (!p) return PSRING_INVALID;
  p->session->HeedStop(heeds != 0);
  return PSRING_OK;
}

int psring_stop_asked(void) {
  const Lease p = JoinedProcess();
  return p && p->session->stop_asked() ? 1 : 0;
}

int psring_log(const char* line) {
  const Lease p = JoinedProcess();
  if (!p) return PSRING_INVALID;
  // To write it down takes a stack as deep.
  constexpr int kMaxDepth = 64;
  bool deep = false;
  const auto look = [&](int depth, auto, auto&) {
    deep |= depth > kMaxDepth;
    return !deep;
  };
  auto json = nlohmann::json::parse(line, look, /*allow_exceptions=*/false);
  if (deep) return CodeOf(Invalid("a line of metrics is nested too deeply"));
  const bool named =
      json.is_object() && json.contains("event") && json["event"].is_string();
  if (!named) {
    return CodeOf(Invalid("a line of metrics is a JSON object with an event"));
  }
  p->session->Log(std::move(json));
  return PSRING_OK;
}

void psring_forked(void) {
  ForgetProcess();
  ForgetInterrupts();
}

int psring_wait(int64_t handle, int timeout_ms) {
  const absl::Duration timeout = absl::Milliseconds(timeout_ms);
  const auto activity = ActivityOfJob();
  const WaitingForOthers waiting(*activity, "a call of psring");
  if (IsCollective(handle)) {
    const Lease p = JoinedProcess();
    if (!p) return PSRING_INVALID;
    p->session->NoteMeeting(handle);
    const auto done =
        p->session->collectives().Wait(CollectiveOf(handle), timeout);
    if (!done.ok()) return CodeOf(done.status());
    return *done ? PSRING_OK : PSRING_PENDING;
  }
  Process* p = CurrentProcess();
  if (p == nullptr) return Error(PSRING_INVALID, NotJoined());
  const auto done = p->tasks.Wait(handle, timeout);
  if (!done.ok()) return CodeOf(done.status());
  return done->has_value() ? CodeOf(**done) : PSRING_PENDING;
}

int psring_wait_interruptibly(int64_t handle) {
  Process* p = CurrentProcess();
  if (p == nullptr) return Error(PSRING_INVALID, NotJoined());
  const InterruptScope interrupts(p->cancellation);
  int code = PSRING_PENDING;
  while (code == PSRING_PENDING) {
    code = psring_wait(handle, std::numeric_limits<int>::max());
  }
  return InterruptedOr(code, interrupts);
}

int psring_release(int64_t handle) {
  if (!IsCollective(handle)) {
    Process* p = CurrentProcess();
    if (p != nullptr) p->tasks.Release(handle);
    return PSRING_OK;
  }
  const Lease p = JoinedProcess();
  if (!p) return PSRING_OK;  // it went with the job
  return CodeOf(p->session->collectives().Release(CollectiveOf(handle)));
}

int psring_result(int64_t handle, void* out, int64_t bytes) {
  const Lease p = JoinedProcess();
  if (!p) return PSRING_INVALID;
  if (IsCollective(handle)) {
    return CodeOf(
        p->session->collectives().Result(CollectiveOf(handle), out, bytes));
  }
  const auto result = p->tasks.Result(handle);
  if (!result.ok()) return CodeOf(result.status());
  if (static_cast<int64_t>(result->size()) != bytes) {
    return CodeOf(Invalid(absl::StrCat("the result has ", result->size(),
                                       " bytes, not ", bytes)));
  }
  std::memcpy(out, result->data(), result->size());
  return PSRING_OK;
}

}  // extern "C"
