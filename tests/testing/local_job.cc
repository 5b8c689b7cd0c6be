#include "tests/testing/local_job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <thread>
#include <utility>

#include "common/cluster/model_opening.h"
#include "common/net/address.h"
#include "ps/served_model.h"

namespace psring {
namespace {

void Secure(Context& context, const LocalJobOptions& options) {
  EXPECT_EQ(options.secret.has_value() ? context.Secure(*options.secret)
                                       : context.UseTokens(),
            absl::OkStatus());
}

MemberOptions MemberOptionsOf(const Coordinator& coordinator,
                              proto::Role role) {
  MemberOptions options;
  options.coordinator = coordinator.endpoint();
  options.join.set_role(role);
  options.join.set_mode(proto::PARAMETER_SERVER);
  options.join.set_wanted_rank(-1);
  options.join.set_host("localhost");
  options.join.set_address("127.0.0.1");
  options.join.set_pid(getpid());
  options.join_timeout = absl::Seconds(30);
  return options;
}

absl::Status RunTestServer(const Coordinator& coordinator,
                           const LocalJobOptions& options) {
  std::vector<std::unique_ptr<ServedModel>> models;  // outlive the context
  Context context;
  Secure(context, options);
  Cancellation cancellation;
  auto member = Member::Join(context, cancellation,
                             MemberOptionsOf(coordinator, proto::PS));
  if (!member.ok()) return member.status();
  absl::Status status;
  while (status.ok()) {
    auto announced = (*member)->NextAnnouncement();
    status = announced.status();
    if (!status.ok() || !announced->has_value()) break;
    const auto request = ParseModelRequest(**announced);
    if (!request.ok()) return request.status();
    if (request->kind == ModelRequest::Kind::kClose) continue;
    auto model =
        ServedModel::Open(context, cancellation, **member, request->model,
                          {.address = "127.0.0.1",
                           .shards = options.shard_threads,
                           .same_host = options.same_host,
                           .published = options.servers_publish,
                           .step_timeout = options.step_timeout});
    status = model.status();
    if (!status.ok()) break;
    (*model)->Serve(nullptr);
    models.push_back(*std::move(model));
  }
  for (auto& model : models) model->Stop();
  return status.ok() ? status : (*member)->Leave(status, Soon());
}

ClusterOptions ClusterOptionsOf(const Coordinator& coordinator,
                                const LocalJobOptions& options, int index) {
  ClusterOptions cluster;
  cluster.mode = options.spec.mode();
  cluster.placement.role = proto::WORKER;
  cluster.placement.summary = "a worker of a test";
  cluster.placement.coordinator = *ParseEndpoint(coordinator.endpoint());
  cluster.advertise = "127.0.0.1";
  if (options.host_of) cluster.host = options.host_of(index);
  cluster.join_timeout = absl::Seconds(30);
  cluster.security.secret = options.secret;
  cluster.security.require_encryption = options.require_encryption;
  return cluster;
}

absl::Status RunTestWorker(
    const Coordinator& coordinator, const LocalJobOptions& options, int index,
    const std::function<absl::Status(LocalWorker&)>& body) {
  auto model = CreateFlatModel(options.spec, options.same_host_of
                                                 ? options.same_host_of(index)
                                                 : options.same_host);
  if (!model.ok()) return model.status();
  LocalWorker worker(*std::move(model));
  auto job = JobClient::Join(ClusterOptionsOf(coordinator, options, index),
                             worker.cancellation);
  if (!job.ok()) return job.status();
  worker.job = *std::move(job);
  worker.member = &worker.job->member();
  auto client = ModelClient::Open(
      *worker.job,
      {.spec = options.spec,
       .nccl = options.nccl_of ? options.nccl_of(index) : std::nullopt,
       .step_timeout = options.step_timeout},
      worker.model);
  if (!client.ok()) return worker.member->Leave(client.status(), Soon());
  worker.client = *std::move(client);
  worker.rank = worker.member->job().rank();
  worker.index = index;
  if (options.nccl_of) return worker.member->Leave(body(worker), Soon());
  auto exchange = worker.client->Connect();
  absl::Status status = exchange.status();
  if (exchange.ok()) {
    worker.exchange = *std::move(exchange);
    status = body(worker);
  }
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
  Secure(context, options);
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
