#include "python/capi/psring.h"

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/mutex.h"
#include "python/capi/interrupts.h"
#include "python/capi/process.h"
#include "python/capi/session.h"
#include "python/capi/tasks.h"

namespace psring {
namespace {

Mutex process_mutex;
Process* process = nullptr;
bool forked = false;

thread_local std::string last_error;
thread_local std::string last_text;

Tasks::Work WithoutResult(std::function<absl::Status()> work) {
  return [work = std::move(work)]() -> absl::StatusOr<std::string> {
    if (absl::Status s = work(); !s.ok()) return s;
    return std::string();
  };
}

// A model of this process, or null with the error set.
ScriptModel* ModelOf(int64_t number) {
  Process* p = JoinedProcess();
  if (p == nullptr) return nullptr;
  ScriptModel* model = p->session->model(number);
  if (model == nullptr) {
    Error(PSRING_INVALID, Invalid(absl::StrCat("there is no model ", number,
                                               ", or it has been closed")));
  }
  return model;
}

int64_t StartOnModel(int64_t number,
                     std::function<absl::Status(ScriptModel&)> work) {
  ScriptModel* model = ModelOf(number);
  if (model == nullptr) return PSRING_INVALID;
  return process->tasks.Start(
      WithoutResult([model, work = std::move(work)] { return work(*model); }));
}

const char* Text(std::string text) {
  last_text = std::move(text);
  return last_text.c_str();
}

}  // namespace

Process* CurrentProcess() {
  MutexLock lock(&process_mutex);
  return process;
}

Process* JoinedProcess() {
  MutexLock lock(&process_mutex);
  if (process != nullptr && process->session != nullptr &&
      process->session->joined()) {
    return process;
  }
  Error(PSRING_INVALID, NotJoined());
  return nullptr;
}

int Error(int code, const absl::Status& status) {
  last_error = std::string(status.message());
  return code;
}

int CodeOf(const absl::Status& status) {
  if (status.ok()) return PSRING_OK;
  const bool callers = status.code() == absl::StatusCode::kInvalidArgument ||
                       status.code() == absl::StatusCode::kNotFound;
  return Error(callers ? PSRING_INVALID : PSRING_ERROR, status);
}

absl::Status Invalid(absl::string_view text) {
  return absl::InvalidArgumentError(text);
}

absl::Status NotJoined() {
  return Invalid(
      forked ? "this is a child of fork: psring's job is its parent's. Start "
               "processes with psring run, or fork before init()"
             : "psring is not initialised: call init() first");
}

}  // namespace psring

using namespace psring;  // NOLINT: what follows is C's

extern "C" {

int psring_abi(void) { return PSRING_ABI; }

const char* psring_version(void) { return PSRING_VERSION; }

const char* psring_error(void) { return last_error.c_str(); }

int64_t psring_join(const char* options) {
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
  auto session = Session::Create(*std::move(parsed), process->cancellation);
  if (!session.ok()) return CodeOf(session.status());
  process->session = *std::move(session);
  return process->tasks.Start(WithoutResult([p = process] {
    const absl::Status joined = p->session->Join();
    if (joined.ok()) return joined;
    std::unique_ptr<Session> failed;  // another attempt may follow
    MutexLock forget(&process_mutex);
    failed = std::move(p->session);
    return joined;
  }));
}

const char* psring_job(void) {
  Process* p = JoinedProcess();
  if (p == nullptr) return nullptr;
  return Text(p->session->Describe().dump());
}

int64_t psring_leave(const char* error) {
  Process* p = JoinedProcess();
  if (p == nullptr) return PSRING_INVALID;
  const std::string why = error;
  return p->tasks.Start(WithoutResult([p, why]() -> absl::Status {
    const absl::Status result =
        why.empty() ? absl::OkStatus() : absl::AbortedError(why);
    const absl::Status ended = p->session->Leave(result);
    std::unique_ptr<Session> session;
    {
      MutexLock lock(&process_mutex);
      session = std::move(p->session);
    }
    session.reset();  // ends the servers that live here
    return why.empty() ? ended : absl::OkStatus();
  }));
}

const char* psring_failure(void) {
  MutexLock lock(&process_mutex);
  if (process == nullptr) return "";
  return Text(std::string(process->cancellation.status().message()));
}

int psring_log(const char* line) {
  Process* p = JoinedProcess();
  if (p == nullptr) return PSRING_INVALID;
  auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("event")) {
    return CodeOf(Invalid("a line of metrics is a JSON object with an event"));
  }
  p->session->Log(std::move(json));
  return PSRING_OK;
}

// Nothing is destroyed: threads that would have to be joined are the parent's.
void psring_forked(void) {
  forked = true;
  process = nullptr;
}

int psring_wait(int64_t handle, int timeout_ms) {
  Process* p = CurrentProcess();
  if (p == nullptr) return Error(PSRING_INVALID, NotJoined());
  const absl::Duration timeout = absl::Milliseconds(timeout_ms);
  if (IsCollective(handle)) {
    p = JoinedProcess();
    if (p == nullptr) return PSRING_INVALID;
    const auto done =
        p->session->collectives().Wait(CollectiveOf(handle), timeout);
    if (!done.ok()) return CodeOf(done.status());
    return *done ? PSRING_OK : PSRING_PENDING;
  }
  const auto done = p->tasks.Wait(handle, timeout);
  if (!done.ok()) return CodeOf(done.status());
  return done->has_value() ? CodeOf(**done) : PSRING_PENDING;
}

int psring_release(int64_t handle) {
  Process* p = CurrentProcess();
  if (p == nullptr) return PSRING_OK;  // it went with the job
  if (!IsCollective(handle)) {
    p->tasks.Release(handle);
    return PSRING_OK;
  }
  MutexLock lock(&process_mutex);
  if (p->session == nullptr) return PSRING_OK;
  return CodeOf(p->session->collectives().Release(CollectiveOf(handle)));
}

int psring_result(int64_t handle, void* out, int64_t bytes) {
  Process* p = JoinedProcess();
  if (p == nullptr) return PSRING_INVALID;
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

int64_t psring_open_model(const char* options) {
  Process* p = JoinedProcess();
  if (p == nullptr) return PSRING_INVALID;
  const std::string text = options;
  return p->tasks.Start([p, text]() -> absl::StatusOr<std::string> {
    const auto number = p->session->OpenModel(text);
    if (!number.ok()) return number.status();
    return std::string(reinterpret_cast<const char*>(&*number),
                       sizeof(*number));
  });
}

const char* psring_model(int64_t model) {
  ScriptModel* found = ModelOf(model);
  return found == nullptr ? nullptr : Text(found->Describe().dump());
}

float* psring_parameters(int64_t model) {
  ScriptModel* found = ModelOf(model);
  return found == nullptr ? nullptr : found->flat().parameters.data();
}

float* psring_gradients(int64_t model) {
  ScriptModel* found = ModelOf(model);
  return found == nullptr ? nullptr : found->flat().gradients.data();
}

int64_t psring_begin(int64_t model, const float* const* slots,
                     int32_t num_slots) {
  std::vector<const float*> list;
  for (int i = 0; slots != nullptr && i < num_slots; ++i) {
    list.push_back(slots[i]);
  }
  return StartOnModel(model, [list](ScriptModel& m) { return m.Begin(list); });
}

int psring_set_rates(int64_t model, const double* rates, int32_t num_rates) {
  ScriptModel* found = ModelOf(model);
  if (found == nullptr) return PSRING_INVALID;
  return CodeOf(found->SetRates({rates, static_cast<size_t>(num_rates)}));
}

int psring_submit(int64_t model, int32_t bucket) {
  ScriptModel* found = ModelOf(model);
  if (found == nullptr) return PSRING_INVALID;
  const int buckets = found->flat().layout.num_buckets();
  if (bucket < 0 || bucket >= buckets) {
    return CodeOf(
        Invalid(absl::StrCat("bucket ", bucket, " of a model of ", buckets)));
  }
  return CodeOf(found->exchange().Submit(bucket));
}

int psring_finish(int64_t model) {
  ScriptModel* found = ModelOf(model);
  if (found == nullptr) return PSRING_INVALID;
  const InterruptScope interrupts(process->cancellation);
  const absl::Status status = process->session->Finish(*found);
  if (!status.ok() && interrupts.interrupted()) {
    return Error(PSRING_INTERRUPTED, status);
  }
  return CodeOf(status);
}

int64_t psring_step(int64_t model) {
  ScriptModel* found = ModelOf(model);
  if (found == nullptr) return PSRING_INVALID;
  return found->exchange().step();
}

int64_t psring_synchronise(int64_t model) {
  return StartOnModel(model, [](ScriptModel& m) { return m.Synchronise(); });
}

int64_t psring_save(int64_t model, const char* directory) {
  const std::string path = directory;
  return StartOnModel(model, [path](ScriptModel& m) { return m.Save(path); });
}

const char* psring_traffic(int64_t model) {
  ScriptModel* found = ModelOf(model);
  if (found == nullptr) return nullptr;
  const Traffic traffic = found->traffic();
  return Text(nlohmann::json({{"sent", traffic.sent},
                              {"received", traffic.received},
                              {"gradients_sent", traffic.gradients_sent}})
                  .dump());
}

int64_t psring_close_model(int64_t model) {
  if (ModelOf(model) == nullptr) return PSRING_INVALID;
  Process* p = process;
  return p->tasks.Start(
      WithoutResult([p, model] { return p->session->CloseModel(model); }));
}

}  // extern "C"
