#include "client/worker_client.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "common/exchange/compressed_exchange.h"
#include "common/exchange/local_steps.h"
#include "common/model/layout.h"
#include "common/optim/compression.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "gpu/staged_exchange.h"
#include "ps/ps_exchange.h"
#include "ring/nccl/nccl_exchange.h"

namespace psring {
namespace {

using Exchange = std::unique_ptr<GradientExchange>;

// A failing worker has nothing to wait for but its message's way out.
constexpr absl::Duration kFailedLeave = absl::Seconds(2);

bool UsesNccl(const proto::JobSpec& spec) {
  return spec.mode() == proto::RING && spec.ring_backend() == "nccl";
}

bool UsesHostRing(const proto::JobSpec& spec) {
  return spec.mode() == proto::RING && !UsesNccl(spec);
}

// What the job's spec asks for on top of its topology.
absl::StatusOr<Exchange> Wrap(Exchange exchange, const proto::Welcome& job,
                              FlatModel& flat, Track* track) {
  const proto::JobSpec& spec = job.spec();
  if (spec.local_steps() > 1) {
    auto local =
        LocalSteps::Create(std::move(exchange), spec,
                           PlanOf(spec, job.workers_size()).optimizer, flat);
    if (!local.ok()) return local.status();
    exchange = *std::move(local);
  }
  auto codec = CodecOf(spec, flat.layout);
  if (!codec.ok()) return codec.status();
  if (!codec->has_value()) return exchange;
  auto compressed = CompressedExchange::Create(std::move(exchange),
                                               **std::move(codec), flat, track);
  if (!compressed.ok()) return compressed.status();
  return *std::move(compressed);
}

}  // namespace

absl::StatusOr<FlatModel> CreateFlatModel(const proto::JobSpec& spec,
                                          SameHost same_host) {
  auto layout = Layout::Create({spec.tensors().begin(), spec.tensors().end()},
                               spec.bucket_bytes());
  if (!layout.ok()) return layout.status();
  const auto optimizer =
      Optimizer::ForMean(spec.optimizer(), spec.local_steps());
  if (!optimizer.ok()) return optimizer.status();
  return FlatModel::Create(
      *std::move(layout), UsesNccl(spec) ? SameHost::kOff : same_host,
      spec.mode() == proto::RING ? optimizer->num_slots() : 0);
}

absl::StatusOr<std::unique_ptr<WorkerClient>> WorkerClient::Join(
    ClientOptions options, Cancellation& cancellation, FlatModel& flat) {
  std::unique_ptr<WorkerClient> client(
      new WorkerClient(std::move(options), cancellation, flat));
  if (absl::Status s = client->JoinJob(); !s.ok()) return s;
  return client;
}

absl::Status WorkerClient::JoinJob() {
  auto session =
      ClusterSession::Start(context_, cancellation_, options_.cluster);
  if (!session.ok()) return session.status();
  session_ = *std::move(session);
  proto::Join join;
  if (flat_.arena != nullptr) {
    *join.mutable_shared_memory() = flat_.arena->address();
  }
  if (UsesHostRing(options_.spec)) {
    auto listener =
        RingListener::Create(context_, cancellation_, session_->address());
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    join.add_endpoints(listener_->endpoint());
  }
  *join.mutable_spec() = options_.spec;
  return session_->Join(std::move(join));
}

absl::StatusOr<Exchange> WorkerClient::Connect(Timeline* timeline, Track* track,
                                               const GpuModel* gpu) {
  if (UsesNccl(options_.spec)) return ConnectNccl(*gpu, track);
  auto topology = ConnectTopology(timeline, track);
  if (!topology.ok()) return topology.status();
  auto exchange = Wrap(*std::move(topology), job(), flat_, track);
  if (!exchange.ok() || gpu == nullptr) return exchange;
  auto staged =
      StagedExchange::Create(gpu->device, gpu->model, flat_,
                             *std::move(exchange), cancellation_, track);
  if (!staged.ok()) return staged.status();
  return *std::move(staged);
}

absl::StatusOr<Exchange> WorkerClient::ConnectTopology(Timeline* timeline,
                                                       Track* track) {
  if (listener_ != nullptr) {
    auto ring =
        ConnectRing(std::move(listener_), job(), flat_, options_.ring,
                    options_.step_timeout, AddTrack(timeline, "ring"), track);
    if (!ring.ok()) return ring.status();
    ring_ = ring->get();
    return *std::move(ring);
  }
  auto exchange =
      PsExchange::Create(context_, cancellation_, member(), flat_, track);
  if (!exchange.ok()) return exchange.status();
  return *std::move(exchange);
}

absl::StatusOr<Exchange> WorkerClient::ConnectNccl(const GpuModel& gpu,
                                                   Track* track) {
  NcclOptions options;
  options.gather = [this](const std::string& name, const std::string& payload,
                          absl::Time deadline) {
    return member().Gather(name, payload, deadline);
  };
  options.allow_shared_gpu = gpu.allow_shared_gpu;
  auto exchange = NcclExchange::Create(
      *std::move(options_.nccl), gpu.device, cancellation_, gpu.model, job(),
      std::move(options), options_.step_timeout, track);
  if (!exchange.ok()) return exchange.status();
  return *std::move(exchange);
}

absl::Status WorkerClient::AllReduce(absl::Span<float> data, float scale,
                                     absl::Time deadline) {
  if (ring_ == nullptr) {
    return absl::FailedPreconditionError(
        "an allreduce by itself needs --mode=ring, connected");
  }
  return ring_->AllReduce(data, scale, deadline);
}

absl::Status WorkerClient::Leave(const absl::Status& result) {
  return member().Leave(
      result,
      absl::Now() + (result.ok() ? 2 * options_.step_timeout : kFailedLeave));
}

}  // namespace psring
