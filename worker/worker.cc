#include "worker/worker.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/exchange/compressed_exchange.h"
#include "common/exchange/local_steps.h"
#include "common/host_cores.h"
#include "common/model/flat_model.h"
#include "common/optim/compression.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "common/optim/policies.h"
#include "common/trace/metrics_file.h"
#include "gpu/staged_exchange.h"
#include "ps/ps_exchange.h"
#include "ring/nccl/nccl_exchange.h"
#include "ring/ring_exchange.h"
#include "spdlog/spdlog.h"
#include "worker/data/load_dataset.h"
#include "worker/models/model.h"
#include "worker/resume.h"
#include "worker/torch/torch_device.h"
#include "worker/trainer.h"
#include "worker/worker_gpu.h"

namespace psring {
namespace {

constexpr int kBusyGroups = 64;

nlohmann::json MeanSeconds(const StepTimes& times, int64_t num_steps) {
  const auto steps = static_cast<double>(std::max<int64_t>(num_steps, 1));
  return {{"compute", absl::ToDoubleSeconds(times.compute) / steps},
          {"exposed", absl::ToDoubleSeconds(times.exposed) / steps},
          {"wait", absl::ToDoubleSeconds(times.injected) / steps},
          {"busy", times.busy.GroupMeans(kBusyGroups)}};
}

// One worker's run, in the order in which it happens. What is declared first is
// destroyed last: gradients are sent from where they lie, so `flat` outlives
// `context`.
class WorkerRun {
 public:
  WorkerRun(const WorkerOptions& options, Cancellation& cancellation)
      : options_(options), spec_(options.spec), cancellation_(cancellation) {}

  absl::Status Load();
  absl::Status Join();
  // After Join: what the run ends with; the job is told.
  absl::Status TrainAndLeave();

 private:
  bool ring() const { return spec_.mode() == proto::RING; }
  bool nccl() const { return ring() && spec_.ring_backend() == "nccl"; }
  bool takes_local_steps() const { return spec_.local_steps() > 1; }
  bool compresses() const { return spec_.compress() != "none"; }
  const proto::Welcome& job() { return session_->member().job(); }
  // Whether to compute on a GPU, and what sums in ring mode.
  absl::Status ChooseBackend();
  absl::Status FindCheckpoint();
  absl::Status OpenGpu();
  absl::Status ConnectExchange();
  absl::Status ConnectNccl();
  absl::StatusOr<std::vector<FlatBuffer>> ReadState();
  absl::Status Train();
  absl::Status Prepare();
  void SetThreads();
  absl::Time StepDeadline() const {
    return absl::Now() + 2 * options_.step_timeout;
  }

  const WorkerOptions options_;
  proto::JobSpec spec_;
  Cancellation& cancellation_;
  std::string checkpoint_dir_;  // absolute
  std::string resumed_from_;
  Progress progress_;
  JobPlan plan_;
  DatasetPair data_;
  std::shared_ptr<Classifier> model_;
  std::optional<FlatModel> flat_;
  bool on_gpu_ = false;
  std::optional<NcclApi> nccl_;
  int num_slots_ = 0;  // of the optimizer's state
  Slowdown slowdown_;
  Context context_;
  std::unique_ptr<ClusterSession> session_;
  std::unique_ptr<Timeline> timeline_;  // null: none
  Track* track_ = nullptr;              // of the trainer's thread
  std::unique_ptr<WorkerGpu> gpu_;      // null: none
  RingExchange* ring_ = nullptr;  // the host's, in ring mode; in exchange_
  std::unique_ptr<GradientExchange> exchange_;
  std::optional<MetricsFile> metrics_;
};

absl::Status WorkerRun::Load() {
  auto data = LoadDataset(options_.data);
  if (!data.ok()) return data.status();
  data_ = *std::move(data);
  auto model = CreateModel(spec_.model(), data_.train.shape,
                           static_cast<uint64_t>(spec_.seed()));
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  for (const proto::TensorShape& shape : ShapesOf(*model_)) {
    *spec_.add_tensors() = shape;
  }
  auto layout = Layout::Create({spec_.tensors().begin(), spec_.tensors().end()},
                               spec_.bucket_bytes());
  if (!layout.ok()) return layout.status();
  auto optimizer = Optimizer::ForMean(spec_.optimizer(), spec_.local_steps());
  if (!optimizer.ok()) return optimizer.status();
  num_slots_ = optimizer->num_slots();
  auto slowdown = Slowdown::Create(
      std::vector<std::string>(spec_.slow().begin(), spec_.slow().end()),
      static_cast<uint64_t>(spec_.seed()));
  if (!slowdown.ok()) return slowdown.status();
  slowdown_ = *std::move(slowdown);
  if (absl::Status s = ChooseBackend(); !s.ok()) return s;
  auto flat = FlatModel::Create(*std::move(layout),
                                nccl() ? SameHost::kOff : options_.same_host,
                                ring() ? num_slots_ : 0);
  if (!flat.ok()) return flat.status();
  flat_ = *std::move(flat);
  spec_.set_dataset_size(data_.train.size());
  return FindCheckpoint();
}

absl::Status WorkerRun::ChooseBackend() {
  const auto wants_gpu = WantsGpu(options_.device);
  if (!wants_gpu.ok()) return wants_gpu.status();
  on_gpu_ = *wants_gpu;
  if (!ring()) return absl::OkStatus();
  spec_.set_ring_backend("host");
  const bool must = options_.ring_backend == "nccl";
  if (must && !on_gpu_) {
    return absl::InvalidArgumentError(
        "--ring-backend=nccl needs a GPU: --device=cuda says what is missing");
  }
  if (must && takes_local_steps()) {
    return absl::InvalidArgumentError(
        "--local-steps averages on the host: use --ring-backend=host");
  }
  if (!on_gpu_ || options_.ring_backend == "host" || takes_local_steps() ||
      compresses()) {
    return absl::OkStatus();
  }
  auto nccl = LoadNccl();
  if (nccl.ok()) {
    nccl_ = *std::move(nccl);
    spec_.set_ring_backend("nccl");
    return absl::OkStatus();
  }
  if (must) return nccl.status();
  spdlog::warn("sums on the host, from GPU memory: {}",
               std::string(nccl.status().message()));
  return absl::OkStatus();
}

absl::Status WorkerRun::FindCheckpoint() {
  if (options_.checkpoint_dir.empty()) return absl::OkStatus();
  checkpoint_dir_ = std::filesystem::absolute(options_.checkpoint_dir);
  if (!options_.resume) return absl::OkStatus();
  auto found = FindResumePoint(checkpoint_dir_, spec_);
  if (!found.ok()) return found.status();
  resumed_from_ = found->checkpoint;
  spec_.set_first_step(found->step);
  return absl::OkStatus();
}

absl::Status WorkerRun::Join() {
  auto session =
      ClusterSession::Start(context_, cancellation_, options_.cluster);
  if (!session.ok()) return session.status();
  session_ = *std::move(session);
  proto::Join join;
  if (flat_->arena != nullptr) {
    *join.mutable_shared_memory() = flat_->arena->address();
  }
  if (ring() && !nccl()) {
    auto exchange = RingExchange::Create(
        context_, cancellation_, session_->address(), *flat_, options_.ring);
    if (!exchange.ok()) return exchange.status();
    ring_ = exchange->get();
    join.add_endpoints(ring_->endpoint());
    exchange_ = *std::move(exchange);
  }
  *join.mutable_spec() = spec_;
  return session_->Join(std::move(join));
}

absl::Status WorkerRun::OpenGpu() {
  auto gpu = WorkerGpu::Open(options_.device, options_.allow_shared_gpu,
                             session_->member(), flat_->layout,
                             nccl() ? num_slots_ : 0, StepDeadline());
  if (!gpu.ok()) return gpu.status();
  gpu_ = *std::move(gpu);
  return absl::OkStatus();
}

absl::Status WorkerRun::ConnectNccl() {
  NcclOptions options;
  options.gather = [this](const std::string& name, const std::string& payload,
                          absl::Time deadline) {
    return session_->member().Gather(name, payload, deadline);
  };
  options.allow_shared_gpu = options_.allow_shared_gpu;
  auto exchange = NcclExchange::Create(
      *std::move(nccl_), gpu_->device(), cancellation_, gpu_->model(), job(),
      std::move(options), options_.step_timeout, track_);
  if (!exchange.ok()) return exchange.status();
  exchange_ = *std::move(exchange);
  return absl::OkStatus();
}

absl::Status WorkerRun::ConnectExchange() {
  if (nccl()) return ConnectNccl();
  if (ring()) {
    if (absl::Status s =
            ring_->Connect(job(), options_.step_timeout,
                           AddTrack(timeline_.get(), "ring"), track_);
        !s.ok()) {
      return s;
    }
  } else {
    auto exchange = PsExchange::Create(context_, cancellation_,
                                       session_->member(), *flat_, track_);
    if (!exchange.ok()) return exchange.status();
    exchange_ = *std::move(exchange);
  }
  if (takes_local_steps()) {
    auto local = LocalSteps::Create(std::move(exchange_), job().spec(),
                                    plan_.optimizer, *flat_);
    if (!local.ok()) return local.status();
    exchange_ = *std::move(local);
  }
  if (compresses()) {
    const auto compression = ParseCompression(job().spec().compress());
    if (!compression.ok()) return compression.status();
    auto compressed = CompressedExchange::Create(std::move(exchange_),
                                                 *compression, *flat_, track_);
    if (!compressed.ok()) return compressed.status();
    exchange_ = *std::move(compressed);
  }
  if (gpu_ == nullptr) return absl::OkStatus();
  auto staged =
      StagedExchange::Create(gpu_->device(), gpu_->model(), *flat_,
                             std::move(exchange_), cancellation_, track_);
  if (!staged.ok()) return staged.status();
  exchange_ = *std::move(staged);
  return absl::OkStatus();
}

void WorkerRun::SetThreads() {
  int local_workers = 0;
  for (const proto::Process& worker : job().workers()) {
    if (worker.host() == job().workers(job().rank()).host()) ++local_workers;
  }
  const int threads =
      options_.threads > 0
          ? options_.threads
          : std::max(1, HostCores() / std::max(local_workers, 1));
  at::set_num_threads(threads);
}

// Everything that can be found out before training starts.
absl::Status WorkerRun::Prepare() {
  SetThreads();
  if (absl::Status s = CheckPolicies(job().spec(), job().workers_size());
      !s.ok()) {
    return s;
  }
  if (absl::Status s = slowdown_.CheckWorkers(job().workers_size()); !s.ok()) {
    return s;
  }
  plan_ = PlanOf(job().spec(), job().workers_size());
  const proto::Process& self = job().workers(job().rank());
  auto metrics = MetricsFile::Create(
      options_.metrics_dir, self,
      {{"mode", ring() ? "ring" : "ps"},
       {"sync", spec_.sync() == proto::BSP   ? "bsp"
                : spec_.sync() == proto::SSP ? "ssp"
                                             : "async"},
       {"compression", spec_.compress()},
       {"device", on_gpu_ ? "cuda" : "cpu"},
       {"num_parameters", flat_->layout.num_parameters()},
       {"total_steps", plan_.total_steps},
       {"steps_per_epoch", plan_.steps_per_epoch},
       {"global_batch", spec_.batch_size() * job().workers_size()}});
  if (!metrics.ok()) return metrics.status();
  metrics_ = *std::move(metrics);
  auto timeline = Timeline::Create(
      options_.timeline, proto::WORKER, job(),
      [this] { return session_->member().coordinator_clock(); });
  if (!timeline.ok()) return timeline.status();
  timeline_ = *std::move(timeline);
  track_ = AddTrack(timeline_.get(), "trainer");
  if (on_gpu_) {
    if (absl::Status s = OpenGpu(); !s.ok()) return s;
  }
  if (absl::Status s = ConnectExchange(); !s.ok()) return s;
  progress_ = {.step = spec_.first_step(),
               .num_workers = job().workers_size(),
               .batch_size = spec_.batch_size(),
               .seed = spec_.seed(),
               .model = spec_.model(),
               .data = spec_.data(),
               .optimizer = spec_.optimizer().name()};
  if (checkpoint_dir_.empty() || job().rank() != 0) return absl::OkStatus();
  if (absl::Status s =
          PrepareCheckpointDirectory(checkpoint_dir_, options_.resume);
      !s.ok()) {
    return s;
  }
  return exchange_->CheckSaveDirectory(checkpoint_dir_, StepDeadline());
}

// The optimizer's state, where this worker reads it, and the model's into the
// model. Rank 0 reads; everybody else gets it from there. With local steps,
// where the optimizer's state is every worker's own, all go on with what rank 0
// has saved.
absl::StatusOr<std::vector<FlatBuffer>> WorkerRun::ReadState() {
  const bool reads = job().rank() == 0 || takes_local_steps();
  if (resumed_from_.empty() || !reads) return std::vector<FlatBuffer>();
  return LoadState(resumed_from_, spec_, *flat_, *model_);
}

absl::Status WorkerRun::Train() {
  if (absl::Status s = Prepare(); !s.ok()) return s;
  const FlatMemory memory = gpu_ == nullptr ? MemoryOf(*flat_) : gpu_->memory();
  Trainer trainer({*model_, data_, *flat_, memory, *exchange_,
                   session_->member(), *metrics_, cancellation_, track_},
                  {.plan = plan_,
                   .progress = progress_,
                   .seed = static_cast<uint64_t>(spec_.seed()),
                   .batch_size = spec_.batch_size(),
                   .clip_norm = spec_.clip_norm(),
                   .slowdown = slowdown_,
                   .step_timeout = options_.step_timeout,
                   .checkpoint_dir = checkpoint_dir_,
                   .checkpoint_every = options_.checkpoint_every});
  if (gpu_ != nullptr) gpu_->Download(*flat_);
  auto slots = ReadState();
  if (!slots.ok()) return slots.status();
  if (gpu_ != nullptr) gpu_->Upload(*flat_);
  if (absl::Status s = exchange_->Join(*std::move(slots), StepDeadline());
      !s.ok()) {
    return s;
  }
  spdlog::info("worker {} of {} trains {} ({} parameters) on {}, {} steps",
               job().rank(), job().workers_size(), spec_.model(),
               flat_->layout.num_parameters(), spec_.data(),
               plan_.total_steps - spec_.first_step());
  const absl::Status status = trainer.Run();
  const int64_t shared =
      flat_->arena == nullptr ? 0 : flat_->arena->address().size_bytes();
  metrics_->Write(
      {{"event", "end"},
       {"step", trainer.step()},
       {"seconds", absl::ToDoubleSeconds(trainer.training_time())},
       {"bytes_sent", exchange_->bytes_sent()},
       {"bytes_received", exchange_->bytes_received()},
       {"gradient_bytes_sent", exchange_->gradient_bytes_sent()},
       {"peak_memory_bytes", PeakMemoryBytes(shared)},
       {"step_seconds", MeanSeconds(trainer.step_times(),
                                    trainer.step() - spec_.first_step())}});
  return status;
}

absl::Status WorkerRun::TrainAndLeave() {
  const absl::Status status = Train();
  // The others may have as much left to do as a slow step takes.
  return session_->member().Leave(
      status, absl::Now() +
                  (status.ok() ? 2 * options_.step_timeout : absl::Seconds(2)));
}

}  // namespace

absl::Status RunWorker(const WorkerOptions& options,
                       Cancellation& cancellation) {
  WorkerRun run(options, cancellation);
  if (absl::Status s = run.Load(); !s.ok()) return s;
  if (absl::Status s = run.Join(); !s.ok()) return s;
  return run.TrainAndLeave();
}

}  // namespace psring
