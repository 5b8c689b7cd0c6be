// The part of psring.h about models.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/process/thread_limit.h"
#include "python/capi/interrupts.h"
#include "python/capi/process.h"
#include "python/capi/psring.h"
#include "python/capi/script_model.h"

using namespace psring;  // NOLINT: what follows is C's

namespace {

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
  // Where no thread could be had for what was to use it alone.
  ~ModelUse() { EndUse(); }
  ModelUse(const ModelUse&) = delete;
  ModelUse& operator=(const ModelUse&) = delete;

  explicit operator bool() const { return model != nullptr; }
  ScriptModel* operator->() const { return model; }

  // Until EndUse it alone uses the model; false while another one does.
  bool TryUse() { return alone = model->TryUse(); }
  void EndUse() {
    if (std::exchange(alone, false)) model->EndUse();
  }

  Lease lease;
  ScriptModel* model = nullptr;
  bool alone = false;
};

absl::Status InUse() {
  return absl::FailedPreconditionError(
      "another operation on this model is under way: wait for it first");
}

// `work` alone uses the model until it is done.
int64_t StartOnModel(std::shared_ptr<ModelUse> use,
                     std::function<absl::Status(ScriptModel&)> work) {
  if (!*use) return PSRING_INVALID;
  if (!use->TryUse()) return CodeOf(InUse());
  Tasks& tasks = use->lease->tasks;
  return tasks.Start(
      WithoutResult([use = std::move(use), work = std::move(work)] {
        const absl::Status status =
            CatchNoThread([&] { return work(*use->model); });
        use->EndUse();
        return status;
      }));
}

// The same at once.
int OnModel(int64_t number,
            const std::function<absl::Status(Session&, ScriptModel&)>& work) {
  ModelUse use(number);
  if (!use) return PSRING_INVALID;
  if (!use.TryUse()) return CodeOf(InUse());
  return CodeOf(work(*use.lease->session, *use.model));
}

// A caller's so many slots; null: none.
template <typename T>
absl::StatusOr<absl::Span<T* const>> SlotsOf(T* const* slots, int32_t num) {
  if (slots == nullptr) return absl::Span<T* const>();
  if (num < 0) return Invalid(absl::StrCat(num, " slots"));
  return absl::Span<T* const>(slots, static_cast<size_t>(num));
}

}  // namespace

extern "C" {

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
  auto use = std::make_shared<ModelUse>(model);
  if (!*use) return PSRING_INVALID;
  Session& session = *use->lease->session;
  return StartOnModel(std::move(use), [&session](ScriptModel& m) {
    return session.Synchronise(m);
  });
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
  if (!use->TryUse()) return CodeOf(InUse());
  Tasks& tasks = use->lease->tasks;
  return tasks.Start(WithoutResult([use, model] {
    use->alone = false;  // nobody uses it again
    std::unique_ptr<ScriptModel> closed;
    absl::Status status = use->lease->session->CloseModel(model, &closed);
    if (closed != nullptr) LeaveModel(std::move(closed));
    return status;
  }));
}

int psring_free_model(const void* parameters) {
  return FreeLeftModel(parameters);
}

}  // extern "C"
