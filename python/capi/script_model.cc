#include "python/capi/script_model.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/exchange/ends_job.h"
#include "common/floating_point.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "common/optim/policies.h"
#include "common/optim/rates.h"
#include "common/optim/sync_policy.h"

namespace psring {
namespace {

absl::Status CannotOpen(int gpu, const absl::Status& why) {
  return absl::Status(
      why.code(),
      absl::StrCat("a model on cuda:", gpu, ": ", std::string(why.message()),
                   "; PSRING_GPU=off has the script's framework copy gradients "
                   "to the host's memory"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScriptModel>> ScriptModel::Open(
    JobClient& job, const ScriptModelOptions& options, SameHost same_host,
    absl::Duration step_timeout, const GpuDoor& door) {
  proto::JobSpec spec = options.spec;
  std::unique_ptr<Device> device;
  std::optional<NcclApi> nccl;
  if (options.gpu.index >= 0) {
    auto opened = door.open(options.gpu.index);
    if (!opened.ok()) return CannotOpen(options.gpu.index, opened.status());
    device = *std::move(opened);
    auto sums =
        ChooseSums(options.gpu, door, *device, job, spec, Now() + step_timeout);
    if (!sums.ok()) return sums.status();
    nccl = *std::move(sums);
  }
  const int workers = job.job().workers_size();
  if (absl::Status s = CheckPolicies(spec, workers); !s.ok()) return s;
  spec.set_first_step(spec.first_updates() /
                      PlanOf(spec, workers).updates_per_step);
  auto flat = CreateFlatModel(spec, same_host);
  if (!flat.ok()) return flat.status();
  std::unique_ptr<ScriptModel> model(new ScriptModel(
      job, spec.model(), step_timeout, *std::move(flat), std::move(device)));
  if (absl::Status s = model->AllocateOnGpu(spec); !s.ok()) return s;
  if (absl::Status s = model->Connect(std::move(nccl), spec, door); !s.ok()) {
    return s;
  }
  return model;
}

// Slots lie there too where NCCL's ring updates there.
absl::Status ScriptModel::AllocateOnGpu(const proto::JobSpec& spec) {
  if (device_ == nullptr) return absl::OkStatus();
  const auto optimizer =
      Optimizer::ForMean(spec.optimizer(), ReturnsMean(spec));
  if (!optimizer.ok()) return optimizer.status();
  const bool updates_there = spec.ring_backend() == "nccl";
  auto on_device = DeviceModel::Create(
      *device_, flat_.layout, updates_there ? optimizer->num_slots() : 0);
  if (!on_device.ok()) return on_device.status();
  on_device_.emplace(*std::move(on_device));
  return absl::OkStatus();
}

absl::Status ScriptModel::Connect(std::optional<NcclApi> nccl,
                                  const proto::JobSpec& spec,
                                  const GpuDoor& door) {
  auto client = ModelClient::Open(
      job_,
      {.id = id_,
       .spec = spec,
       .nccl = std::move(nccl),
       .gpu = device_ != nullptr ? device_->info().bus_id : std::string(),
       .step_timeout = step_timeout_},
      flat_);
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  std::optional<GpuModel> gpu;
  if (on_device_.has_value()) {
    gpu.emplace(GpuModel{*device_, *on_device_, /*allow_shared_gpu=*/false,
                         door.before_abort});
  }
  auto exchange =
      client_->Connect(nullptr, nullptr, gpu.has_value() ? &*gpu : nullptr);
  if (!exchange.ok()) return exchange.status();
  exchange_ = *std::move(exchange);
  return absl::OkStatus();
}

float* ScriptModel::parameters() {
  return on_device_.has_value() ? on_device_->parameters.data()
                                : flat_.parameters.data();
}

float* ScriptModel::gradients() {
  return on_device_.has_value() ? on_device_->gradients.data()
                                : flat_.gradients.data();
}

int64_t ScriptModel::shared_bytes() const {
  return flat_.arena == nullptr ? 0 : flat_.arena->address().size_bytes();
}

absl::Status ScriptModel::SetStream(Stream stream) {
  if (!on_device_.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a stream for '", id_, "', which lies in the host's memory"));
  }
  on_device_->compute = stream;
  return absl::OkStatus();
}

int64_t ScriptModel::updates() const {
  return PlanOf(client_->spec(), job_.job().workers_size())
      .UpdatesAt(exchange_->step());
}

Time ScriptModel::Deadline() const { return StepDeadline(step_timeout_); }

nlohmann::json ScriptModel::Describe() const {
  const Layout& layout = flat_.layout;
  nlohmann::json tensors = nlohmann::json::array();
  for (int i = 0; i < static_cast<int>(layout.tensors().size()); ++i) {
    tensors.push_back({{"begin", layout.tensor(i).begin},
                       {"size", layout.tensor(i).size()},
                       {"bucket", layout.bucket_of_tensor(i)}});
  }
  const std::vector<std::string> slots = SlotNames();
  return {{"num_elements", layout.num_elements()},
          {"num_buckets", layout.num_buckets()},
          {"num_slots", slots.size()},
          {"slot_names", slots},
          {"ring_backend", client_->spec().ring_backend()},
          {"tensors", tensors}};
}

// Connect has made one of these settings.
std::vector<std::string> ScriptModel::SlotNames() const {
  const auto optimizer = Optimizer::ForMean(client_->spec().optimizer(),
                                            ReturnsMean(client_->spec()));
  return optimizer.ok() ? optimizer->slot_names() : std::vector<std::string>();
}

absl::Status ScriptModel::CheckNumSlots(size_t given) const {
  const size_t expected = SlotNames().size();
  if (given == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(given, " parts of the optimizer's state: ",
                   client_->spec().optimizer().name(), " has ", expected));
}

absl::StatusOr<std::vector<FlatBuffer>> ScriptModel::CopySlots(
    absl::Span<const float* const> slots) const {
  if (!slots.empty()) {
    if (absl::Status s = CheckNumSlots(slots.size()); !s.ok()) return s;
  }
  std::vector<FlatBuffer> buffers;
  const size_t all = SlotNames().size();
  for (size_t i = 0; i < all; ++i) {  // zeros where none are given
    auto buffer = FlatBuffer::Create(flat_.layout.num_elements());
    if (!buffer.ok()) return buffer.status();
    if (!slots.empty()) {
      std::copy_n(slots[i], flat_.layout.num_elements(), buffer->data());
    }
    buffers.push_back(*std::move(buffer));
  }
  return buffers;
}

absl::Status ScriptModel::Begin(std::vector<FlatBuffer> slots) {
  if (begun_) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", id_, "' has begun already"));
  }
  begun_ = true;
  return exchange_->Join(std::move(slots), Deadline());
}

absl::Status ScriptModel::Submit(int bucket) {
  if (!begun_) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", id_, "' has not begun: psring_begin comes first"));
  }
  if (bucket < 0 || bucket >= flat_.layout.num_buckets()) {
    return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket, " of '",
                                                   id_, "', which has ",
                                                   flat_.layout.num_buckets()));
  }
  if (submitted_[bucket]) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket ", bucket, " of '", id_,
                     "' goes twice in one step: psring_finish comes between"));
  }
  submitted_[bucket] = true;
  if (++num_submitted_ == flat_.layout.num_buckets()) {
    owed_step_ = exchange_->step() + 1;
  }
  const StandardFloatingPoint modes;
  return exchange_->Submit(bucket);
}

absl::Status ScriptModel::Finish() {
  if (!begun_) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", id_, "' has not begun: psring_begin comes first"));
  }
  if (num_submitted_ < flat_.layout.num_buckets()) {
    const auto missing = std::find(submitted_.begin(), submitted_.end(), false);
    return absl::InvalidArgumentError(absl::StrCat(
        "the step of '", id_, "' lacks bucket ", missing - submitted_.begin(),
        ": psring_submit of each of its ", flat_.layout.num_buckets(),
        " comes before psring_finish"));
  }
  submitted_.assign(submitted_.size(), false);
  num_submitted_ = 0;
  const StandardFloatingPoint modes;
  if (absl::Status s = exchange_->Finish(Deadline()); !s.ok()) return s;
  job_.member().ReportStep(exchange_->step());
  const bool have_own = client_->spec().rates_from_workers();
  return have_own && waits_for_all()
             ? rate_check_.AfterStep(flat_.rates, Deadline())
             : absl::OkStatus();
}

// Without backup workers, of which a step does not need all.
bool ScriptModel::waits_for_all() const {
  return TakesEveryGradient(client_->spec());
}

std::optional<int64_t> ScriptModel::StepNeededBy(int64_t step) const {
  const proto::JobSpec& spec = client_->spec();
  const SyncPolicy& policy = PolicyOf(spec);
  if (policy.barrier) {
    return waits_for_all() ? std::optional<int64_t>(step) : std::nullopt;
  }
  if (policy.lead == SyncPolicy::Lead::kUnlimited) return std::nullopt;
  return step - MaxLead(policy, spec.staleness());
}

absl::Status ScriptModel::SetRates(absl::Span<const double> rates) {
  if (absl::Status s = CheckRates(client_->spec(), rates); !s.ok()) return s;
  std::copy(rates.begin(), rates.end(), flat_.rates.begin());
  return absl::OkStatus();
}

absl::Status ScriptModel::CheckFetch(absl::Span<float* const> slots) const {
  return job_.job().rank() == 0 ? CheckNumSlots(slots.size())
                                : absl::OkStatus();
}

// Answers to pushes and to pulls would be taken for each other.
absl::Status ScriptModel::CheckNoStepBegun() const {
  const bool begun = num_submitted_ > 0 || owed_step_ > exchange_->step();
  if (!begun || PolicyOf(client_->spec()).barrier) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", id_,
      "' has begun a step: workers meet, and fetch the optimizer's "
      "state, after step() and not between backward() and step()"));
}

absl::Status ScriptModel::Synchronise() {
  if (absl::Status s = CheckNoStepBegun(); !s.ok()) return s;
  return exchange_->Synchronise(Before::kEvaluation, Deadline());
}

absl::Status ScriptModel::FetchSlots(absl::Span<float* const> slots) {
  if (absl::Status s = CheckNoStepBegun(); !s.ok()) return s;
  if (absl::Status s = exchange_->Synchronise(Before::kSaveState, Deadline());
      !s.ok()) {
    return s;
  }
  absl::Status fetched;
  if (job_.job().rank() == 0) {
    fetched = exchange_->FetchSlots(slots, Deadline());
    if (EndsJob(fetched)) return fetched;
  }
  // All have met, and the state may be large: the step timeout is not its.
  const auto all = job_.member().Gather(
      absl::StrCat("fetched ", id_, " ", num_fetches_++),
      std::string(fetched.message()), Time::InfiniteFuture());
  if (!all.ok()) return all.status();
  if (all->front().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "worker 0 cannot fetch the optimizer's state: ", all->front()));
}

void ScriptModel::Disconnect() {
  last_traffic_ = traffic();
  exchange_.reset();
  client_.reset();
}

absl::Status ScriptModel::Close() {
  if (absl::Status s = Synchronise(); !s.ok()) return s;
  // What another one waits for there may have to be sent again.
  const auto all =
      job_.member().Gather(absl::StrCat("leaves ", id_), "", Deadline());
  if (!all.ok()) return all.status();
  last_traffic_ = traffic();
  exchange_.reset();
  return client_->Close(Deadline());
}

}  // namespace psring
