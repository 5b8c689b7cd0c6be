#include "tests/testing/local_job.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <utility>

#include "common/exchange/compressed_exchange.h"
#include "common/exchange/local_steps.h"
#include "common/optim/compression.h"
#include "common/optim/optimizer.h"
#include "ps/ps_exchange.h"
#include "ps/shard_map.h"
#include "ps/shard_thread.h"
#include "ring/ring_exchange.h"

namespace psring {
namespace {

Layout LayoutOf(const proto::JobSpec& spec) {
  return *Layout::Create({spec.tensors().begin(), spec.tensors().end()},
                         spec.bucket_bytes());
}

MemberOptions MemberOptionsOf(const Coordinator& coordinator,
                              proto::Role role) {
  MemberOptions options;
  options.coordinator = coordinator.endpoint();
  options.join.set_role(role);
  options.join.set_wanted_rank(-1);
  options.join.set_host("localhost");
  options.join.set_pid(4711);
  options.join_timeout = absl::Seconds(30);
  return options;
}

absl::Status RunTestServer(const Coordinator& coordinator,
                           const LocalJobOptions& options) {
  std::vector<HostWorker> host_workers;              // outlive the shards
  std::vector<std::unique_ptr<ShardThread>> shards;  // outlive the context
  Context context;
  Cancellation cancellation;
  MemberOptions member_options = MemberOptionsOf(coordinator, proto::PS);
  for (int i = 0; i < options.shard_threads; ++i) {
    auto shard = ShardThread::Start(context, "127.0.0.1", cancellation);
    if (!shard.ok()) return shard.status();
    member_options.join.add_endpoints((*shard)->endpoint());
    shards.push_back(*std::move(shard));
  }
  auto proof = ShmArena::Create(0);
  if (!proof.ok()) return proof.status();
  if (options.same_host == SameHost::kAuto && options.servers_publish) {
    *member_options.join.mutable_shared_memory() = (*proof)->address();
    for (const auto& shard : shards) {
      member_options.join.mutable_shared_memory()->add_doorbell_fds(
          shard->doorbell_fd());
    }
  }
  auto member = Member::Join(context, cancellation, member_options);
  absl::Status status = member.status();
  if (status.ok()) {
    const proto::Welcome& job = (*member)->job();
    const Layout layout = LayoutOf(job.spec());
    if (options.same_host == SameHost::kAuto) {
      host_workers = FindHostWorkers(layout, job);
    }
    const std::vector<ShardPlace> places = MapShards(layout, job);
    size_t mine = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].server != job.rank()) continue;
      shards[mine++]->Serve({{.job = job,
                              .shard = static_cast<int>(i),
                              .host_workers = host_workers,
                              .steps = {.step_timeout = options.step_timeout}},
                             layout,
                             places[i].range});
    }
    status = (*member)->WaitForEnd();
  }
  for (auto& shard : shards) shard->Stop();
  return status.ok() ? status : (*member)->Leave(status, Soon());
}

absl::Status Compress(const proto::JobSpec& spec, LocalWorker& worker) {
  const auto compression = ParseCompression(spec.compress());
  if (!compression.ok() || compression->none()) return compression.status();
  auto compressed = CompressedExchange::Create(std::move(worker.exchange),
                                               *compression, worker.model);
  if (compressed.ok()) worker.exchange = *std::move(compressed);
  return compressed.status();
}

absl::Status RunTestWorker(
    const Coordinator& coordinator, const LocalJobOptions& options, int index,
    const std::function<absl::Status(LocalWorker&)>& body) {
  const SameHost same_host =
      options.same_host_of ? options.same_host_of(index) : options.same_host;
  const int num_slots = options.spec.mode() == proto::RING
                            ? Optimizer::ForMean(options.spec.optimizer(),
                                                 options.spec.local_steps())
                                  ->num_slots()
                            : 0;
  auto model = FlatModel::Create(LayoutOf(options.spec), same_host, num_slots);
  if (!model.ok()) return model.status();
  LocalWorker worker(*std::move(model));
  MemberOptions member_options = MemberOptionsOf(coordinator, proto::WORKER);
  *member_options.join.mutable_spec() = options.spec;
  if (worker.model.arena != nullptr) {
    *member_options.join.mutable_shared_memory() =
        worker.model.arena->address();
  }
  RingExchange* ring = nullptr;
  if (options.spec.mode() == proto::RING) {
    auto exchange = RingExchange::Create(worker.context, worker.cancellation,
                                         "127.0.0.1", worker.model);
    if (!exchange.ok()) return exchange.status();
    ring = exchange->get();
    member_options.join.add_endpoints(ring->endpoint());
    worker.exchange = *std::move(exchange);
  }
  auto member =
      Member::Join(worker.context, worker.cancellation, member_options);
  if (!member.ok()) return member.status();
  worker.member = *std::move(member);
  worker.rank = worker.member->job().rank();
  absl::Status status;
  if (ring != nullptr) {
    status = ring->Connect(worker.member->job(), options.step_timeout);
  } else {
    auto exchange = PsExchange::Create(worker.context, worker.cancellation,
                                       *worker.member, worker.model);
    status = exchange.status();
    if (status.ok()) worker.exchange = *std::move(exchange);
  }
  if (status.ok() && options.spec.local_steps() > 1) {
    auto local = LocalSteps::Create(std::move(worker.exchange), options.spec,
                                    options.spec.optimizer(), worker.model);
    status = local.status();
    if (status.ok()) worker.exchange = *std::move(local);
  }
  if (status.ok()) status = Compress(options.spec, worker);
  if (status.ok()) status = body(worker);
  return worker.member->Leave(status, Soon());
}

}  // namespace

proto::JobSpec SmallSpec(proto::Mode mode, proto::Sync sync) {
  proto::JobSpec spec;
  spec.set_mode(mode);
  spec.set_sync(sync);
  spec.set_bucket_bytes(4000);
  spec.mutable_optimizer()->set_name("momentum");
  spec.mutable_optimizer()->set_lr(0.05);
  spec.mutable_optimizer()->set_momentum(0.9);
  spec.mutable_optimizer()->mutable_schedule()->set_kind("constant");
  int i = 0;
  for (int64_t elements : {1, 777, 16, 3001, 5, 64, 1234}) {
    proto::TensorShape* tensor = spec.add_tensors();
    tensor->set_name("t" + std::to_string(i++));
    tensor->add_shape(elements);
  }
  return spec;
}

std::vector<absl::Status> RunLocalJob(
    const LocalJobOptions& options,
    const std::function<absl::Status(LocalWorker&)>& body) {
  const bool ring = options.spec.mode() == proto::RING;
  MembershipOptions membership;
  membership.mode = options.spec.mode();
  membership.num_servers = ring ? 0 : options.num_servers;
  membership.num_workers = options.num_workers;
  membership.job_epoch = 12345;
  Context context;
  auto coordinator = Coordinator::Start(context, {"127.0.0.1", 0}, membership);
  EXPECT_TRUE(coordinator.ok()) << coordinator.status();
  std::vector<absl::Status> results(membership.num_servers +
                                    options.num_workers);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    const bool server = static_cast<int>(i) < membership.num_servers;
    threads.emplace_back([&, i, server] {
      results[i] =
          server ? RunTestServer(**coordinator, options)
                 : RunTestWorker(**coordinator, options,
                                 static_cast<int>(i) - membership.num_servers,
                                 body);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void FillGradients(LocalWorker& worker, int64_t step) {
  std::mt19937 random(static_cast<unsigned>(step * 1000 + worker.rank));
  std::normal_distribution<float> normal;
  const Layout& layout = worker.model.layout;
  for (size_t t = 0; t < layout.tensors().size(); ++t) {
    const Range range = layout.tensor(static_cast<int>(t));
    for (int64_t i = range.begin; i < range.end; ++i) {
      worker.model.gradients.data()[i] = normal(random);
    }
  }
}

std::function<absl::Status(LocalWorker&)> TrainBody(
    int num_steps, std::vector<std::vector<float>>* finals) {
  return [=](LocalWorker& worker) -> absl::Status {
    const Layout& layout = worker.model.layout;
    for (size_t t = 0; worker.rank == 0 && t < layout.tensors().size(); ++t) {
      const Range range = layout.tensor(static_cast<int>(t));
      for (int64_t i = range.begin; i < range.end; ++i) {
        worker.model.parameters.data()[i] = static_cast<float>(i % 97) * 0.01f;
      }
    }
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    for (int step = 0; step < num_steps; ++step) {
      FillGradients(worker, step);
      for (int b = 0; b < layout.num_buckets(); ++b) {
        if (absl::Status s = worker.exchange->Submit(b); !s.ok()) return s;
      }
      if (absl::Status s = worker.exchange->Finish(Soon()); !s.ok()) return s;
    }
    const FlatBuffer& p = worker.model.parameters;
    (*finals)[worker.rank].assign(p.data(), p.data() + p.size());
    return absl::OkStatus();
  };
}

}  // namespace psring
