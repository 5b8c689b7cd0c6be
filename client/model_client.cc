#include "client/model_client.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/ring_backend.h"
#include "common/clock.h"
#include "common/cluster/announcements.h"
#include "common/cluster/host_groups.h"
#include "common/cluster/member.h"
#include "common/cluster/model_opening.h"
#include "common/exchange/compressed_exchange.h"
#include "common/exchange/local_steps.h"
#include "common/log.h"
#include "common/model/layout.h"
#include "common/optim/compression.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "common/optim/rates.h"
#include "common/optim/sync_policy.h"
#include "gpu/device_steps.h"
#include "gpu/staged_exchange.h"
#include "ps/ps_exchange.h"
#include "ps/ps_follower.h"
#include "ring/nccl/host_sum_exchange.h"
#include "ring/nccl/nccl_exchange.h"

namespace psring {
namespace {

using Exchange = std::unique_ptr<GradientExchange>;

bool UsesNccl(const proto::JobSpec& spec) {
  return spec.mode() == proto::RING && spec.ring_backend() == "nccl";
}

bool UsesHostRing(const proto::JobSpec& spec) {
  return spec.mode() == proto::RING && !UsesNccl(spec);
}

// Those who look at the job then know who waits for whom.
void TellRule(Member& member, const proto::JobSpec& spec) {
  member.figures().Update([&](proto::Figures& all) {
    all.set_sync(PolicyOf(spec).name);
    all.set_staleness_bound(spec.staleness());
    all.set_backup_workers(spec.backup_workers());
  });
}

}  // namespace

absl::StatusOr<FlatModel> CreateFlatModel(const proto::JobSpec& spec,
                                          SameHost same_host) {
  auto layout = Layout::Create({spec.tensors().begin(), spec.tensors().end()},
                               spec.bucket_bytes());
  if (!layout.ok()) return layout.status();
  const auto optimizer =
      Optimizer::ForMean(spec.optimizer(), ReturnsMean(spec));
  if (!optimizer.ok()) return optimizer.status();
  auto flat = FlatModel::Create(
      *std::move(layout), UsesNccl(spec) ? SameHost::kOff : same_host,
      spec.mode() == proto::RING ? optimizer->num_slots() : 0);
  if (flat.ok()) flat->rates = FirstRates(spec);
  return flat;
}

absl::StatusOr<std::unique_ptr<ModelClient>> ModelClient::Open(
    JobClient& job, ModelOptions options, FlatModel& flat) {
  std::unique_ptr<ModelClient> client(
      new ModelClient(job, std::move(options), flat));
  proto::ModelPart part;
  *part.mutable_spec() = client->options_.spec;
  if (flat.arena != nullptr) {
    *part.mutable_shared_memory() = flat.arena->address();
  }
  if (client->options_.nccl.has_value() && !UsesNccl(client->options_.spec)) {
    part.set_sum_device(client->options_.gpu.empty()
                            ? absl::StrCat("of worker ", job.job().rank())
                            : client->options_.gpu);
  }
  if (UsesHostRing(client->options_.spec)) {
    auto listener =
        RingListener::Create(job.context(), job.cancellation(), job.address());
    if (!listener.ok()) return listener.status();
    client->listener_ = *std::move(listener);
    part.add_endpoints(client->listener_->endpoint());
  }
  auto model = OpenModel(job.member(), client->options_.id, part,
                         Now() + client->options_.step_timeout);
  if (!model.ok()) return model.status();
  client->model_ = *std::move(model);
  TellRule(job.member(), client->model_.spec());
  return client;
}

absl::StatusOr<Exchange> ModelClient::Connect(Timeline* timeline, Track* track,
                                              const GpuModel* gpu) {
  if (UsesNccl(options_.spec)) return ConnectNccl(*gpu, timeline, track);
  if (gpu != nullptr) {
    const std::vector<int> group = HostGroupOf(job(), job().rank());
    if (group.size() > 1) return ConnectHostSum(*gpu, group, timeline, track);
  }
  return ConnectHosts(gpu, timeline, track);
}

// What the job's spec asks for, on top of its topology.
absl::StatusOr<Exchange> ModelClient::ConnectHosts(const GpuModel* gpu,
                                                   Timeline* timeline,
                                                   Track* track) {
  // A thread of the staged exchange's calls the other exchanges.
  if (gpu != nullptr) track = AddTrack(timeline, "exchange");
  auto topology = ConnectTopology(timeline, track);
  if (!topology.ok()) return topology.status();
  Exchange exchange = *std::move(topology);
  auto codec = CodecOf(spec(), flat_.layout);
  if (!codec.ok()) return codec.status();
  if (codec->has_value()) {
    auto compressed = CompressedExchange::Create(
        std::move(exchange), **std::move(codec), flat_, track);
    if (!compressed.ok()) return compressed.status();
    exchange = *std::move(compressed);
  }
  if (gpu != nullptr) {
    // A sum of NCCL's may come before: its watchdog gives up earlier, and then
    // asks who is late.
    auto staged = StagedExchange::Create(
        gpu->device, gpu->model, flat_, std::move(exchange),
        job_.cancellation(), 3 * options_.step_timeout, track);
    if (!staged.ok()) return staged.status();
    exchange = *std::move(staged);
  }
  if (spec().local_steps() <= 1) return exchange;
  JobPlan plan = PlanOf(spec(), job().workers_size());
  auto own = gpu == nullptr
                 ? HostSteps::Create(plan.optimizer, flat_)
                 : DeviceSteps::Create(plan.optimizer, gpu->device, gpu->model,
                                       job_.cancellation());
  if (!own.ok()) return own.status();
  return std::make_unique<LocalSteps>(
      std::move(exchange), spec(), std::move(plan), flat_.layout.num_buckets(),
      *std::move(own));
}

absl::StatusOr<Exchange> ModelClient::ConnectHostSum(
    const GpuModel& gpu, const std::vector<int>& group, Timeline* timeline,
    Track* track) {
  const int leader = group.front();
  LogInfo(
      "NCCL sums the gradients of $0 workers of this host; worker $1 pushes "
      "them",
      group.size(), leader);
  Exchange inner;
  if (job().rank() == leader) {
    auto staged = ConnectHosts(&gpu, timeline, track);
    if (!staged.ok()) return staged;
    inner = *std::move(staged);
  } else {
    inner = std::make_unique<PsFollower>(job_.member(), job());
  }
  auto exchange = HostSumExchange::Create(
      *std::move(options_.nccl), gpu.device, job_.cancellation(), gpu.model,
      HostGroupJob(job()),
      NcclOptionsOf(gpu, absl::StrCat(options_.id, "/host of ", leader), group),
      std::move(inner), options_.step_timeout,
      {track, AddTrack(timeline, "NCCL")});
  if (!exchange.ok()) return exchange.status();
  return *std::move(exchange);
}

NcclOptions ModelClient::NcclOptionsOf(const GpuModel& gpu,
                                       const std::string& gathers,
                                       const std::vector<int>& ranks) {
  const std::string late = absl::StrCat(kLateCollective, gathers);
  NcclOptions options;
  options.gather = [this, gathers, ranks](const std::string& name,
                                          const std::string& payload,
                                          Time deadline) {
    return job_.member().Gather(absl::StrCat(gathers, "/", name), payload,
                                deadline, ranks);
  };
  options.watchdog.tell_late = [this, late](int64_t sequence) {
    job_.member().Announce(proto::WORKER, late, absl::StrCat(sequence));
  };
  options.watchdog.told_late = [this, late]() -> std::optional<int64_t> {
    const auto told = job_.member().AwaitAnnouncement(late, Now());
    int64_t sequence = 0;
    if (!told.ok() || !absl::SimpleAtoi(*told, &sequence)) return std::nullopt;
    return sequence;
  };
  options.allow_shared_gpu = gpu.allow_shared_gpu;
  options.end_timeout = options_.step_timeout;
  options.watchdog.before_abort = gpu.before_abort;
  options.watchdog.culprit_grace =
      job_.member().heartbeat_timeout() + kHeartbeatInterval;
  return options;
}

absl::StatusOr<Exchange> ModelClient::ConnectTopology(Timeline* timeline,
                                                      Track* track) {
  if (listener_ != nullptr) {
    auto ring = ConnectRing(std::move(listener_), job(), flat_, options_.ring,
                            options_.step_timeout, AddTrack(timeline, "ring"));
    if (!ring.ok()) return ring.status();
    ring_ = ring->get();
    return *std::move(ring);
  }
  auto exchange = PsExchange::Create(job_.context(), job_.cancellation(),
                                     job_.member(), job(), flat_, track);
  if (!exchange.ok()) return exchange.status();
  return *std::move(exchange);
}

absl::StatusOr<Exchange> ModelClient::ConnectNccl(const GpuModel& gpu,
                                                  Timeline* timeline,
                                                  Track* track) {
  absl::Status network = PrepareNcclNetwork(
      job(), {.address = job_.address(),
              .protects_own = job_.context().secured(),
              .requires_encryption = job_.requires_encryption()});
  if (!network.ok()) return network;
  auto exchange = NcclExchange::Create(
      *std::move(options_.nccl), gpu.device, job_.cancellation(), gpu.model,
      job(), NcclOptionsOf(gpu, options_.id, {}), options_.step_timeout,
      {track, AddTrack(timeline, "NCCL")}, flat_.rates);
  if (!exchange.ok()) return exchange.status();
  return *std::move(exchange);
}

absl::Status ModelClient::AllReduce(absl::Span<float> data, float scale,
                                    Time deadline) {
  if (ring_ == nullptr) {
    return absl::FailedPreconditionError(
        "an allreduce by itself needs --mode=ring, connected");
  }
  return ring_->AllReduce(data, scale, deadline);
}

absl::Status ModelClient::Close(Time deadline) {
  return CloseModel(job_.member(), options_.id, deadline);
}

}  // namespace psring
