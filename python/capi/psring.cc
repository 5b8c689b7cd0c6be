#include "python/capi/psring.h"

#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "gpu/device.h"
#include "python/capi/interrupts.h"
#include "python/capi/process.h"
#include "python/capi/script_model.h"
#include "python/capi/session.h"
#include "python/capi/tasks.h"

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

Tasks::Work WithoutResult(std::function<absl::Status()> work) {
  return [work = std::move(work)]() -> absl::StatusOr<std::string> {
    if (absl::Status s = work(); !s.ok()) return s;
    return std::string();
  };
}

// A model of this process and the right to use it; none: the error is set.
struct ModelUse {
  explicit ModelUse(int64_t number) : lease(JoinedProcess()) {
    if (!lease) return;
    model = lease->session->model(number);
    if (model == nullptr) {
      Error(PSRING_INVALID, Invalid(absl::StrCat("there is no model ", number,
                                                 ", or it has been closed")));
    }
  }
  explicit operator bool() const { return model != nullptr; }
  ScriptModel* operator->() const { return model; }

  Lease lease;
  ScriptModel* model = nullptr;
};

absl::Status InUse() {
  return absl::FailedPreconditionError(
      "another operation on this model is under way: wait for it first");
}

// `work` alone uses the model until it is done.
int64_t StartOnModel(std::shared_ptr<ModelUse> use,
                     std::function<absl::Status(ScriptModel&)> work) {
  if (!*use) return PSRING_INVALID;
  if (!use->model->TryUse()) return CodeOf(InUse());
  Tasks& tasks = use->lease->tasks;
  return tasks.Start(
      WithoutResult([use = std::move(use), work = std::move(work)] {
        const absl::Status status = work(*use->model);
        use->model->EndUse();
        return status;
      }));
}

// The same at once.
int OnModel(int64_t number,
            const std::function<absl::Status(Session&, ScriptModel&)>& work) {
  const ModelUse use(number);
  if (!use) return PSRING_INVALID;
  if (!use.model->TryUse()) return CodeOf(InUse());
  const absl::Status status = work(*use.lease->session, *use.model);
  use.model->EndUse();
  return CodeOf(status);
}

const char* Text(std::string text) {
  last_text = std::move(text);
  return last_text.c_str();
}

int InterruptedOr(int code, const InterruptScope& interrupts) {
  return code != PSRING_OK && interrupts.interrupted() ? PSRING_INTERRUPTED
                                                       : code;
}

// Of nobody, where there is no job.
std::shared_ptr<Activity> ActivityOfJob() {
  const Lease p = JoinedProcess();
  return p ? p->session->activity() : std::make_shared<Activity>();
}

// A caller's so many slots; null: none.
template <typename T>
absl::StatusOr<absl::Span<T* const>> SlotsOf(T* const* slots, int32_t num) {
  if (slots == nullptr) return absl::Span<T* const>();
  if (num < 0) return Invalid(absl::StrCat(num, " slots"));
  return absl::Span<T* const>(slots, static_cast<size_t>(num));
}

}  // namespace

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

int CodeOf(const absl::Status& status) {
  if (status.ok()) return PSRING_OK;
  if (absl::IsDeadlineExceeded(status)) SetLastTimeout(status.message());
  const bool callers = status.code() == absl::StatusCode::kInvalidArgument ||
                       status.code() == absl::StatusCode::kNotFound;
  return Error(callers ? PSRING_INVALID : PSRING_ERROR, status);
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

}  // namespace psring

using namespace psring;  // NOLINT: what follows is C's

extern "C" {

int psring_abi(void) { return PSRING_ABI; }

const char* psring_version(void) { return PSRING_VERSION; }

const char* psring_error(void) { return last_error.c_str(); }

int psring_cuda_built(void) { return BuiltWithCuda() ? 1 : 0; }

const char* psring_policies(void) { return Text(PoliciesAsJson()); }

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
  const Lease p = JoinedProcess();
  return p ? Text(p->session->Describe().dump()) : nullptr;
}

const char* psring_coordinator(void) {
  MutexLock lock(&process_mutex);
  if (process == nullptr || process->session == nullptr) return Text("");
  return Text(process->session->coordinator());
}

int64_t psring_leave(const char* error) {
  const Lease lease = JoinedProcess();
  if (!lease) return PSRING_INVALID;
  Process* p = lease.get();
  {
    MutexLock lock(&process_mutex);
    if (std::exchange(p->leaving, true)) {
      return Error(PSRING_INVALID, Invalid("this process is leaving already"));
    }
  }
  const std::string why = error;
  return p->tasks.Start(WithoutResult([p, why]() -> absl::Status {
    const absl::Status result = why.empty() ? absl::OkStatus()
                                : IsOfTimeout(why)
                                    ? absl::DeadlineExceededError(why)
                                    : absl::AbortedError(why);
    const absl::Status ended = p->session->Leave(result);
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
    auto models = session->TakeModels();
    {
      MutexLock lock(&process_mutex);
      for (auto& model : models) {
        const float* parameters = model->parameters();
        left_models[parameters] = std::move(model);
      }
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

// Nothing is destroyed: threads that would have to be joined are the parent's.
void psring_forked(void) {
  forked = true;
  process = nullptr;
  ForgetInterrupts();
}

int psring_wait(int64_t handle, int timeout_ms) {
  const absl::Duration timeout = absl::Milliseconds(timeout_ms);
  const auto activity = ActivityOfJob();
  const WaitingForOthers waiting(*activity, "a call of psring");
  if (IsCollective(handle)) {
    const Lease p = JoinedProcess();
    if (!p) return PSRING_INVALID;
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

int64_t psring_open_model(const char* options) {
  auto p = std::make_shared<Lease>(JoinedProcess());
  if (!*p) return PSRING_INVALID;
  Tasks& tasks = (*p)->tasks;
  const std::string text = options;
  return tasks.Start([p, text]() -> absl::StatusOr<std::string> {
    const auto number = (*p)->session->OpenModel(text);
    if (!number.ok()) return number.status();
    return std::string(reinterpret_cast<const char*>(&*number),
                       sizeof(*number));
  });
}

const char* psring_model(int64_t model) {
  const ModelUse use(model);
  return use ? Text(use->Describe().dump()) : nullptr;
}

float* psring_parameters(int64_t model) {
  const ModelUse use(model);
  return use ? use->parameters() : nullptr;
}

float* psring_gradients(int64_t model) {
  const ModelUse use(model);
  return use ? use->gradients() : nullptr;
}

int64_t psring_begin(int64_t model, const float* const* slots,
                     int32_t num_slots) {
  auto use = std::make_shared<ModelUse>(model);
  if (!*use) return PSRING_INVALID;
  const auto given = SlotsOf(slots, num_slots);
  if (!given.ok()) return CodeOf(given.status());
  auto copied = (*use)->CopySlots(*given);
  if (!copied.ok()) return CodeOf(copied.status());
  auto buffers = std::make_shared<std::vector<FlatBuffer>>(*std::move(copied));
  return StartOnModel(std::move(use), [buffers](ScriptModel& m) {
    return m.Begin(std::move(*buffers));
  });
}

int psring_set_rates(int64_t model, const double* rates, int32_t num_rates) {
  if (num_rates < 0) return CodeOf(Invalid(absl::StrCat(num_rates, " rates")));
  return OnModel(model, [&](Session&, ScriptModel& m) {
    return m.SetRates({rates, static_cast<size_t>(num_rates)});
  });
}

int psring_set_stream(int64_t model, void* stream) {
  return OnModel(model, [&](Session&, ScriptModel& m) {
    return m.SetStream(Stream{stream});
  });
}

int psring_submit(int64_t model, int32_t bucket) {
  return OnModel(model,
                 [&](Session&, ScriptModel& m) { return m.Submit(bucket); });
}

int psring_finish(int64_t model) {
  Process* p = CurrentProcess();
  if (p == nullptr) return Error(PSRING_INVALID, NotJoined());
  const InterruptScope interrupts(p->cancellation);
  const int code = OnModel(model, [](Session& session, ScriptModel& m) {
    return session.Finish(m);
  });
  return InterruptedOr(code, interrupts);
}

int64_t psring_updates(int64_t model) {
  const ModelUse use(model);
  if (!use) return PSRING_INVALID;
  return use->updates();
}

int64_t psring_synchronise(int64_t model) {
  return StartOnModel(std::make_shared<ModelUse>(model),
                      [](ScriptModel& m) { return m.Synchronise(); });
}

int64_t psring_fetch_slots(int64_t model, float* const* slots,
                           int32_t num_slots) {
  auto use = std::make_shared<ModelUse>(model);
  if (!*use) return PSRING_INVALID;
  const auto given = SlotsOf(slots, num_slots);
  if (!given.ok()) return CodeOf(given.status());
  const std::vector<float*> into(given->begin(), given->end());
  if (absl::Status s = (*use)->CheckFetch(into); !s.ok()) return CodeOf(s);
  return StartOnModel(std::move(use),
                      [into](ScriptModel& m) { return m.FetchSlots(into); });
}

const char* psring_traffic(int64_t model) {
  const ModelUse use(model);
  if (!use) return nullptr;
  const Traffic traffic = use->traffic();
  return Text(nlohmann::json({{"sent", traffic.sent},
                              {"received", traffic.received},
                              {"gradients_sent", traffic.gradients_sent}})
                  .dump());
}

int64_t psring_close_model(int64_t model) {
  auto use = std::make_shared<ModelUse>(model);
  if (!*use) return PSRING_INVALID;
  if (!use->model->TryUse()) return CodeOf(InUse());
  Tasks& tasks = use->lease->tasks;
  return tasks.Start(WithoutResult(
      [use, model] { return use->lease->session->CloseModel(model); }));
}

int psring_free_model(const void* parameters) {
  std::unique_ptr<ScriptModel> model;
  MutexLock lock(&process_mutex);
  const auto found = left_models.find(parameters);
  if (found == left_models.end()) {
    return Error(PSRING_INVALID,
                 Invalid("no model of a job that has ended lies there"));
  }
  model = std::move(found->second);
  left_models.erase(found);
  return PSRING_OK;
}

}  // extern "C"
