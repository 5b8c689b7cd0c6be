#include "ps/server.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/host_cores.h"
#include "common/optim/policies.h"
#include "common/trace/metrics_file.h"
#include "ps/shard_map.h"
#include "ps/shard_thread.h"
#include "spdlog/spdlog.h"

namespace psring {
namespace {

using Shards = std::vector<std::unique_ptr<ShardThread>>;

int NumShards(int wish) { return wish > 0 ? wish : ThreadsFor(1); }

absl::StatusOr<Shards> Listen(Context& context, const std::string& address,
                              int count, Cancellation& cancellation) {
  Shards shards;
  for (int i = 0; i < count; ++i) {
    auto shard = ShardThread::Start(context, address, cancellation);
    if (!shard.ok()) return shard.status();
    shards.push_back(*std::move(shard));
  }
  return shards;
}

// Fills `host_workers`, which outlive the shards.
absl::Status ServeAll(Shards& shards, Member& member,
                      const ServerOptions& options, Timeline* timeline,
                      std::vector<HostWorker>& host_workers) {
  const proto::Welcome& job = member.job();
  if (absl::Status s = CheckPolicies(job.spec(), job.workers_size()); !s.ok()) {
    return s;
  }
  auto layout =
      Layout::Create({job.spec().tensors().begin(), job.spec().tensors().end()},
                     job.spec().bucket_bytes());
  if (!layout.ok()) return layout.status();
  if (options.same_host == SameHost::kAuto) {
    host_workers = FindHostWorkers(*layout, job);
  }
  const std::vector<ShardPlace> places = MapShards(*layout, job);
  size_t mine = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].server != job.rank()) continue;
    shards[mine++]->Serve(
        {{.job = job,
          .shard = static_cast<int>(i),
          .host_workers = host_workers,
          .steps = {.step_timeout = options.step_timeout,
                    .on_step =
                        [&member](int64_t step) { member.ReportStep(step); }},
          .track = AddTrack(timeline, absl::StrCat("shard ", i))},
         *layout,
         places[i].range});
  }
  spdlog::info("ps {} serves {} parameters of {} to {} workers", job.rank(),
               layout->num_parameters(), job.spec().model(),
               job.workers_size());
  return absl::OkStatus();
}

nlohmann::json StopAll(Shards& shards, absl::Time start) {
  StalenessStats staleness;
  std::vector<int64_t> late;
  int64_t sent = 0;
  int64_t received = 0;
  for (auto& shard : shards) {
    const ShardThread::Result result = shard->Stop();
    staleness.Add(result.staleness);
    late.resize(std::max(late.size(), result.late_gradients.size()), 0);
    for (size_t w = 0; w < result.late_gradients.size(); ++w) {
      late[w] += result.late_gradients[w];
    }
    sent += result.bytes_sent;
    received += result.bytes_received;
  }
  const double mean = staleness.updates == 0
                          ? 0.0
                          : static_cast<double>(staleness.sum) /
                                static_cast<double>(staleness.updates);
  nlohmann::json histogram = nlohmann::json::object();
  for (size_t w = 0; w < staleness.histograms.size(); ++w) {
    histogram[absl::StrCat(w)] = staleness.histograms[w];
  }
  return {{"event", "end"},
          {"seconds", absl::ToDoubleSeconds(absl::Now() - start)},
          {"bytes_sent", sent},
          {"bytes_received", received},
          {"peak_memory_bytes", PeakMemoryBytes(/*shared_bytes=*/0)},
          {"staleness_mean", mean},
          {"staleness_max", staleness.max},
          {"staleness_histogram", histogram},
          {"late_gradients", late}};
}

}  // namespace

absl::Status RunServer(const ServerOptions& options,
                       Cancellation& cancellation) {
  // What the shards send lies in them until the context has flushed it, so
  // they are destroyed after it; their sockets are closed before, by StopAll.
  std::vector<HostWorker> host_workers;
  Shards shards;
  Context context;
  auto session = ClusterSession::Start(context, cancellation, options.cluster);
  if (!session.ok()) return session.status();
  std::unique_ptr<ShmArena> proof;  // that a worker is on this host
  if (options.same_host == SameHost::kAuto) {
    auto arena = ShmArena::Create(0);
    if (!arena.ok()) return arena.status();
    proof = *std::move(arena);
  }
  auto listening = Listen(context, (*session)->address(),
                          NumShards(options.shard_threads), cancellation);
  if (!listening.ok()) return listening.status();
  shards = *std::move(listening);
  proto::Join join;
  if (proof != nullptr) *join.mutable_shared_memory() = proof->address();
  for (const auto& shard : shards) {
    join.add_endpoints(shard->endpoint());
    if (proof == nullptr) continue;
    join.mutable_shared_memory()->add_doorbell_fds(shard->doorbell_fd());
  }
  absl::Status status = (*session)->Join(std::move(join));
  if (!status.ok()) {
    StopAll(shards, absl::Now());
    return status;
  }
  Member& member = (*session)->member();
  const proto::Welcome& job = member.job();
  const absl::Time start = absl::Now();
  auto metrics =
      MetricsFile::Create(options.metrics_dir, job.servers(job.rank()), {});
  status = metrics.status();
  auto timeline = Timeline::Create(options.timeline, proto::PS, job, [&member] {
    return member.coordinator_clock();
  });
  status.Update(timeline.status());
  if (status.ok()) {
    status = ServeAll(shards, member, options, timeline->get(), host_workers);
  }
  if (status.ok()) status = member.WaitForEnd();
  const nlohmann::json end = StopAll(shards, start);
  if (metrics.ok()) metrics->Write(end);
  if (status.ok()) {
    spdlog::info("ps {}: the job has ended", job.rank());
    return status;
  }
  return member.Leave(status, absl::Now() + absl::Seconds(2));
}

}  // namespace psring
