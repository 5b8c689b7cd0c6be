#include "worker/worker.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/job_client.h"
#include "client/model_client.h"
#include "client/ring_backend.h"
#include "common/clock.h"
#include "common/cluster/host_of.h"
#include "common/cluster/stop_agreement.h"
#include "common/host_cores.h"
#include "common/log.h"
#include "common/model/flat_model.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "common/optim/policies.h"
#include "common/optim/sync_policy.h"
#include "common/trace/metrics_file.h"
#include "worker/batch_norm_check.h"
#include "worker/collective_statistics.h"
#include "worker/data/load_dataset.h"
#include "worker/hardware.h"
#include "worker/loader_choice.h"
#include "worker/models/model.h"
#include "worker/resume.h"
#include "worker/run_start.h"
#include "worker/torch/precision.h"
#include "worker/torch/torch_device.h"
#include "worker/torch/torch_error.h"
#include "worker/trainer.h"
#include "worker/worker_gpu.h"
#include "worker/worker_records.h"

namespace psring {
namespace {

absl::StatusOr<Slowdown> SlowdownOf(const proto::JobSpec& spec) {
  const std::vector<std::string> faults(spec.slow().begin(), spec.slow().end());
  return Slowdown::Create(faults, static_cast<uint64_t>(spec.seed()));
}

// One worker's run, in the order in which it happens. What is declared first is
// destroyed last: gradients are sent from where they lie in `flat_`, and the
// exchange stands on the job and the model.
class WorkerRun {
 public:
  WorkerRun(const WorkerOptions& options, Cancellation& cancellation,
            SoftStop& soft_stop)
      : options_(options),
        wish_(options.spec),
        cancellation_(cancellation),
        soft_stop_(soft_stop) {}
  ~WorkerRun() { soft_stop_.Set(nullptr); }

  absl::Status Load();
  absl::Status Join();
  // After Join: what the run ends with; the job is told.
  absl::Status TrainAndLeave();

 private:
  const proto::Welcome& job() { return client_->job(); }
  Member& member() { return job_->member(); }
  // What all have agreed on.
  const proto::JobSpec& spec() { return job().spec(); }
  // Whether to compute on a GPU, and what sums in ring mode.
  absl::Status ChooseBackend();
  absl::Status AllocateFlat();
  absl::Status Agree();
  absl::Status Prepare();
  void TakeCores();
  absl::Status OpenRecords();
  absl::Status OpenGpu();
  absl::Status ConnectExchange();
  absl::Status SynchroniseBatchNorm();
  absl::StatusOr<std::vector<FlatBuffer>> ReadState();
  absl::Status JoinExchange();
  absl::Status Train();
  void LogSizeChange();
  absl::Status Leave(const absl::Status& result);
  Time Deadline() const { return StepDeadline(options_.step_timeout); }

  const WorkerOptions options_;
  proto::JobSpec wish_;  // the job as this worker wants it, until it has joined
  Cancellation& cancellation_;
  SoftStop& soft_stop_;
  RunStart start_;
  DatasetPair data_;
  std::shared_ptr<Classifier> model_;
  Slowdown slowdown_;
  std::optional<FlatModel> flat_;
  bool on_gpu_ = false;
  int cores_ = 1;                // this worker's share
  std::optional<NcclApi> nccl_;  // until it has joined
  std::unique_ptr<JobClient> job_;
  std::unique_ptr<ModelClient> client_;
  JobPlan plan_;
  std::unique_ptr<Timeline> timeline_;                // null: none
  Track* track_ = nullptr;                            // of the trainer's thread
  std::unique_ptr<WorkerGpu> gpu_;                    // null: none
  std::unique_ptr<CollectiveStatistics> statistics_;  // null: none are shared
  std::unique_ptr<GradientExchange> exchange_;
  std::optional<MetricsFile> metrics_;
  std::optional<StopAgreement> stop_;  // from Train on
};

absl::Status WorkerRun::Load() {
  auto data = LoadDataset(options_.data);
  if (!data.ok()) return data.status();
  data_ = *std::move(data);
  wish_.set_dataset_size(data_.train.size());
  // Workers that read files have all the same, and a resumed job, too.
  if (!data_.identity.empty()) {
    wish_.set_data(absl::StrCat(wish_.data(), ",", data_.identity));
  }
  auto model = CreateModel(wish_.model(), data_.train.shape,
                           static_cast<uint64_t>(wish_.seed()));
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  if (wish_.sync_batch_norm() && model_->buffers().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sync-batch-norm: ", wish_.model(),
                     " has no batch norm. Leave the flag out"));
  }
  for (const proto::TensorShape& shape : ShapesOf(*model_)) {
    *wish_.add_tensors() = shape;
  }
  auto slowdown = SlowdownOf(wish_);
  if (!slowdown.ok()) return slowdown.status();
  slowdown_ = *std::move(slowdown);
  return ChooseBackend();
}

absl::Status WorkerRun::AllocateFlat() {
  auto flat = CreateFlatModel(wish_, options_.same_host);
  if (!flat.ok()) return flat.status();
  flat_ = *std::move(flat);
  return absl::OkStatus();
}

absl::Status WorkerRun::ChooseBackend() {
  const auto wants_gpu = WantsGpu(options_.device);
  if (!wants_gpu.ok()) return wants_gpu.status();
  on_gpu_ = *wants_gpu;
  if (!on_gpu_) {
    absl::Status status = CheckPrecision(options_.precision, "");
    if (!status.ok()) return status;
  }
  auto nccl = ChooseRingBackend(options_.ring_backend, on_gpu_, wish_);
  if (!nccl.ok()) return nccl.status();
  nccl_ = nccl->has_value() ? *std::move(nccl)
                            : ChooseHostSum(options_.host_sum, on_gpu_, wish_);
  return absl::OkStatus();
}

absl::Status WorkerRun::Agree() {
  if (absl::Status s = CheckPolicies(wish_, member().job().workers_size());
      !s.ok()) {
    return s;
  }
  auto start = AgreeOnStart(member(), options_.start, cancellation_, wish_);
  if (!start.ok()) return start.status();
  start_ = *std::move(start);
  const proto::Welcome& joined = member().job();
  if (wish_.mode() != proto::RING || joined.workers_size() == 1) {
    return absl::OkStatus();
  }
  return AgreeOnNccl(
      *job_,
      {.gather = "ring backend",
       .gpu = nccl_.has_value() ? BusIdOf(options_.device, joined) : "",
       .may_share = options_.allow_shared_gpu,
       .must = options_.ring_backend == "nccl"},
      Now() + options_.step_timeout, wish_, nccl_);
}

absl::Status WorkerRun::Join() {
  auto job = JobClient::Join(options_.cluster, cancellation_);
  if (!job.ok()) return job.status();
  job_ = *std::move(job);
  job_->context().ExpectWaitsOf(options_.step_timeout);
  if (absl::Status s = Agree(); !s.ok()) return Leave(s);
  TakeCores();
  if (absl::Status s = AllocateFlat(); !s.ok()) return Leave(s);
  // NCCL sums on a GPU that workers share only where the user lets them.
  const std::string gpu = nccl_.has_value() && wish_.mode() != proto::RING &&
                                  !options_.allow_shared_gpu
                              ? BusIdOf(options_.device, member().job())
                              : std::string();
  auto client = ModelClient::Open(*job_,
                                  {.spec = wish_,
                                   .ring = options_.ring,
                                   .nccl = std::move(nccl_),
                                   .gpu = gpu,
                                   .step_timeout = options_.step_timeout},
                                  *flat_);
  if (!client.ok()) return Leave(client.status());
  client_ = *std::move(client);
  return absl::OkStatus();
}

// Everything that can be found out before training starts.
absl::Status WorkerRun::Prepare() {
  if (absl::Status s = slowdown_.CheckWorkers(job().workers_size()); !s.ok()) {
    return s;
  }
  plan_ = PlanOf(spec(), job().workers_size());
  const absl::Status enough = CheckBatchNorm(
      *model_, spec(), plan_.smallest_batch, job().workers_size(),
      /*warns=*/job().rank() == 0);
  if (!enough.ok()) return enough;
  if (absl::Status s = OpenRecords(); !s.ok()) return s;
  if (on_gpu_) {
    if (absl::Status s = OpenGpu(); !s.ok()) return s;
  }
  if (absl::Status s = ConnectExchange(); !s.ok()) return s;
  if (absl::Status s = SynchroniseBatchNorm(); !s.ok()) return s;
  if (options_.start.directory.empty() || job().rank() != 0) {
    return absl::OkStatus();
  }
  return exchange_->CheckSaveDirectory(options_.start.directory, Deadline());
}

// This worker's share of its host's cores. What it allocates from now on lies
// near its GPU.
void WorkerRun::TakeCores() {
  const proto::Welcome& joined = member().job();
  const int share = HostCores() / PlaceOnHost(joined, joined.rank()).count;
  int near = 1;
  if (on_gpu_ && options_.affinity == "auto") {
    StayNear(BusIdOf(options_.device, joined));
    near = WorkersNear(options_.device, joined);
  }
  cores_ = std::max(1, std::min(share, HostCores() / near));
  at::set_num_threads(options_.threads > 0 ? options_.threads : cores_);
}

absl::Status WorkerRun::OpenRecords() {
  auto metrics = MetricsFile::Create(
      options_.metrics_dir, job().workers(job().rank()),
      StartDetails(job(), plan_, flat_->layout.num_parameters(), on_gpu_),
      options_.tensorboard);
  if (!metrics.ok()) return metrics.status();
  metrics_ = *std::move(metrics);
  metrics_->WriteTable("hardware", HardwareOf(job(), on_gpu_));
  metrics_->WriteTable("flags", options_.flags);
  auto timeline =
      Timeline::Create(options_.timeline, proto::WORKER, job(),
                       [this] { return member().coordinator_clock(); });
  if (!timeline.ok()) return timeline.status();
  timeline_ = *std::move(timeline);
  track_ = AddTrack(timeline_.get(), "trainer");
  return absl::OkStatus();
}

// Slots lie on the GPU where NCCL's ring or local steps update there.
absl::Status WorkerRun::OpenGpu() {
  const auto optimizer = Optimizer::Create(plan_.optimizer);
  if (!optimizer.ok()) return optimizer.status();
  const bool updates_there =
      spec().ring_backend() == "nccl" || spec().local_steps() > 1;
  auto gpu = WorkerGpu::Open(
      options_.device, options_.allow_shared_gpu, member(), flat_->layout,
      updates_there ? optimizer->num_slots() : 0, Deadline());
  if (!gpu.ok()) return gpu.status();
  gpu_ = *std::move(gpu);
  SetGpuModes(options_.precision, options_.deterministic);
  return CheckPrecision(options_.precision,
                        gpu_->device().info().compute_capability);
}

absl::Status WorkerRun::ConnectExchange() {
  std::optional<GpuModel> gpu;
  if (gpu_ != nullptr) {
    gpu.emplace(
        GpuModel{gpu_->device(), gpu_->model(), options_.allow_shared_gpu});
  }
  auto exchange = client_->Connect(timeline_.get(), track_,
                                   gpu.has_value() ? &*gpu : nullptr);
  if (!exchange.ok()) return exchange.status();
  exchange_ = *std::move(exchange);
  return absl::OkStatus();
}

absl::Status WorkerRun::SynchroniseBatchNorm() {
  if (!spec().sync_batch_norm() || job().workers_size() == 1) {
    return absl::OkStatus();
  }
  auto statistics = CollectiveStatistics::Connect(
      *job_, options_.step_timeout, AddTrack(timeline_.get(), "batch norm"));
  if (!statistics.ok()) return statistics.status();
  statistics_ = *std::move(statistics);
  model_->SynchroniseBatchNorm(*statistics_);
  return absl::OkStatus();
}

// The optimizer's state, where this worker reads it, and the model's into the
// model. Everybody else gets it from rank 0.
absl::StatusOr<std::vector<FlatBuffer>> WorkerRun::ReadState() {
  if (start_.point.checkpoint.empty()) return std::vector<FlatBuffer>();
  member().activities().own().Work("reading the checkpoint");
  return LoadState(start_.point.checkpoint, spec(), *flat_, *model_);
}

absl::Status WorkerRun::JoinExchange() {
  if (gpu_ != nullptr) gpu_->Download(*flat_);
  auto slots = ReadState();
  if (!slots.ok()) return slots.status();
  if (gpu_ != nullptr) gpu_->Upload(*flat_);
  Activity& own = member().activities().own();
  own.Wait();
  const WaitingForOthers waiting(own, "the first parameters");
  if (spec().first_step() > 0) {
    // Whoever reads works, which --progress-timeout bounds; the others wait.
    const auto all_have_read =
        member().Gather("state read", "", Time::InfiniteFuture());
    if (!all_have_read.ok()) return all_have_read.status();
  }
  return exchange_->Join(*std::move(slots), Deadline());
}

absl::Status WorkerRun::Train() {
  if (absl::Status s = Prepare(); !s.ok()) return s;
  const FlatMemory memory = gpu_ == nullptr ? MemoryOf(*flat_) : gpu_->memory();
  // Else libtorch would open GPU 0 too, for what names no device.
  const c10::OptionalDeviceGuard on_device(
      gpu_ == nullptr ? std::nullopt : std::optional(memory.device));
  const SyncPolicy& policy = PolicyOf(spec());
  const bool runs_ahead = policy.lead == SyncPolicy::Lead::kUnlimited;
  stop_.emplace(member(), spec().first_step(), spec().local_steps(),
                runs_ahead ? StopAgreement::Where::kOwnStep
                           : StopAgreement::Where::kSameStep);
  Trainer trainer(
      {*model_, data_, *flat_, memory, *exchange_, member(), *metrics_,
       cancellation_, track_, gpu_ == nullptr ? nullptr : &gpu_->device(),
       gpu_ == nullptr ? kComputeStream : gpu_->model().compute,
       gpu_ == nullptr ? nullptr : AddTrack(timeline_.get(), "GPU"), &*stop_},
      {.plan = plan_,
       .progress = {.step = spec().first_step(),
                    .cursor = std::nullopt,
                    .updates = std::nullopt,
                    .dataset_size = spec().dataset_size(),
                    .num_workers = job().workers_size(),
                    .batch_size = spec().batch_size(),
                    .seed = spec().seed(),
                    .bucket_bytes = spec().bucket_bytes(),
                    .model = spec().model(),
                    .data = spec().data(),
                    .optimizer = spec().optimizer().name()},
       .seed = static_cast<uint64_t>(spec().seed()),
       .batch_size = spec().batch_size(),
       .clip_norm = spec().clip_norm(),
       .precision = options_.precision,
       .scale_loss = options_.precision == Precision::kFp16,
       .loader = ChooseLoader({.threads = options_.loader_threads,
                               .channels_last = options_.channels_last},
                              data_.train, cores_, gpu_.get()),
       .slowdown = slowdown_,
       .step_timeout = options_.step_timeout,
       .catches_up = !policy.barrier,
       .runs_ahead = runs_ahead,
       .checkpoints = {.directory = options_.start.directory,
                       .every = spec().checkpoint_every(),
                       .keep = options_.checkpoint_keep,
                       .lock = start_.lock.get()}});
  if (absl::Status s = JoinExchange(); !s.ok()) return s;
  soft_stop_.Set([this] { stop_->Wish(); });
  LogSizeChange();
  LogInfo("worker $0 of $1 trains $2 ($3 parameters) on $4, $5 steps",
          job().rank(), job().workers_size(), spec().model(),
          flat_->layout.num_parameters(), spec().data(),
          std::max<int64_t>(plan_.total_steps - spec().first_step(), 0));
  const absl::Status status = trainer.Run();
  if (trainer.stopped()) soft_stop_.SetStopped();
  metrics_->Write(EndLine(trainer, exchange_->traffic(), *flat_, gpu_.get()));
  return status;
}

void WorkerRun::LogSizeChange() {
  if (start_.point.checkpoint.empty() || job().rank() != 0) return;
  const std::string change =
      SizeChange(start_.point.progress, spec(), plan_, job().workers_size());
  if (!change.empty()) LogInfo("$0", change);
}

absl::Status WorkerRun::Leave(const absl::Status& result) {
  member().activities().own().Wait();
  return job_->Leave(result);
}

absl::Status WorkerRun::TrainAndLeave() {
  return Leave(CatchTorchErrors(
      [this] { return Train(); },
      [] { return std::string("moving the model to its device"); }));
}

}  // namespace

absl::Status RunWorker(const WorkerOptions& options, Cancellation& cancellation,
                       SoftStop& soft_stop) {
  WorkerRun run(options, cancellation, soft_stop);
  if (absl::Status s = run.Load(); !s.ok()) {
    const Placement& place = options.cluster.placement;
    const bool alone = place.hosts_coordinator && place.num_servers == 0 &&
                       place.num_workers == 1;
    if (alone) return s;
    // Nobody shall wait for this worker. Whether it can be told is not its
    // worry.
    auto job = JobClient::Start(options.cluster, cancellation);
    if (job.ok()) (*job)->Decline(s);
    return s;
  }
  if (absl::Status s = run.Join(); !s.ok()) return s;
  return run.TrainAndLeave();
}

}  // namespace psring
