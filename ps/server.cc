#include "ps/server.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/announcements.h"
#include "common/cluster/model_opening.h"
#include "common/cluster/process_names.h"
#include "common/host_cores.h"
#include "common/log.h"
#include "common/page/job_page.h"
#include "common/trace/metrics_file.h"
#include "ps/served_model.h"

namespace psring {
namespace {

int NumShards(int wish) { return wish > 0 ? wish : ThreadsFor(1); }

// A server's life: models come and go with the workers' wishes. What is
// declared first is destroyed last.
class ServerRun {
 public:
  ServerRun(const ServerOptions& options, Cancellation& cancellation,
            SoftStop* soft_stop)
      : options_(options), cancellation_(cancellation), soft_stop_(soft_stop) {}

  absl::Status Join();
  // Serves until the job has ended; its result.
  absl::Status Serve();

 private:
  absl::Status Open(const proto::Welcome& request);
  void Close(const std::string& id);
  absl::Status OpenOrClose(const proto::Announce& announced);
  absl::Status ServeRequests();
  // Whether SIGTERM is handed on to the workers.
  void HandOnStops(bool heeded);
  nlohmann::json End() const;

  const ServerOptions options_;
  Cancellation& cancellation_;
  SoftStop* const soft_stop_;  // null: none
  Time start_;
  // What has been served by models that are closed.
  ServingStats served_;
  std::unique_ptr<Timeline> timeline_;  // null: none
  std::vector<std::unique_ptr<ServedModel>> models_;
  Context context_;
  std::unique_ptr<ClusterSession> session_;
};

absl::Status ServerRun::Join() {
  auto page = StartPage(options_.cluster);
  if (!page.ok()) return page.status();
  auto session = ClusterSession::Start(context_, cancellation_,
                                       options_.cluster, *std::move(page));
  if (!session.ok()) return session.status();
  session_ = *std::move(session);
  return session_->Join();
}

absl::Status ServerRun::Open(const proto::Welcome& request) {
  Member& member = session_->member();
  auto model = ServedModel::Open(context_, cancellation_, member, request,
                                 {.address = session_->address(),
                                  .shards = NumShards(options_.shard_threads),
                                  .same_host = options_.same_host,
                                  .step_timeout = options_.step_timeout});
  if (!model.ok()) return model.status();
  if (models_.empty() && timeline_ == nullptr) {
    auto timeline =
        Timeline::Create(options_.timeline, proto::PS, (*model)->job(),
                         [&member] { return member.coordinator_clock(); });
    if (!timeline.ok()) return timeline.status();
    timeline_ = *std::move(timeline);
  }
  (*model)->Serve(timeline_.get());
  models_.push_back(*std::move(model));
  return absl::OkStatus();
}

void ServerRun::Close(const std::string& id) {
  for (auto model = models_.begin(); model != models_.end(); ++model) {
    if ((*model)->job().model_id() != id) continue;
    served_.Add((*model)->Stop());
    models_.erase(model);
    return;
  }
}

absl::Status ServerRun::OpenOrClose(const proto::Announce& announced) {
  const auto request = ParseModelRequest(announced);
  if (!request.ok()) return request.status();
  if (request->kind == ModelRequest::Kind::kOpen) return Open(request->model);
  Close(request->model.model_id());
  return absl::OkStatus();
}

absl::Status ServerRun::ServeRequests() {
  while (true) {
    auto announced = session_->member().NextAnnouncement();
    if (!announced.ok()) return announced.status();
    if (!announced->has_value()) return absl::OkStatus();
    if ((*announced)->name() == kHeedsStop) {
      HandOnStops((*announced)->payload() == kHeeded);
      continue;
    }
    const absl::Status done = OpenOrClose(**announced);
    if (done.ok()) continue;
    if (!absl::IsInvalidArgument(done)) return done;
    return absl::InvalidArgumentError(absl::StrCat(
        "of the model that ", Describe(session_->member().job().workers(0)),
        " asks for: ", done.message()));
  }
}

void ServerRun::HandOnStops(bool heeded) {
  if (soft_stop_ == nullptr) return;
  if (!heeded) return soft_stop_->Set(nullptr);
  soft_stop_->Set([&member = session_->member()] {
    LogInfo(
        "ps $0: SIGTERM: asks the workers to end early, and serves until "
        "they have",
        member.job().rank());
    member.Announce(proto::WORKER, kStopWish, "");
  });
}

nlohmann::json ServerRun::End() const {
  const StalenessStats& staleness = served_.staleness;
  const double mean = staleness.updates == 0
                          ? 0.0
                          : static_cast<double>(staleness.sum) /
                                static_cast<double>(staleness.updates);
  nlohmann::json histogram = nlohmann::json::object();
  for (size_t w = 0; w < staleness.histograms.size(); ++w) {
    histogram[absl::StrCat(w)] = staleness.histograms[w];
  }
  return {{"event", "end"},
          {"seconds", absl::ToDoubleSeconds(Now() - start_)},
          {"bytes_sent", served_.bytes_sent},
          {"bytes_received", served_.bytes_received},
          {"peak_memory_bytes", PeakMemoryBytes(/*shared_bytes=*/0)},
          {"staleness_mean", mean},
          {"staleness_max", staleness.max},
          {"staleness_histogram", histogram},
          {"late_gradients", served_.late_gradients}};
}

absl::Status ServerRun::Serve() {
  Member& member = session_->member();
  const proto::Welcome& job = member.job();
  start_ = Now();
  auto metrics = MetricsFile::Create(
      options_.metrics_dir, job.servers(job.rank()), {}, options_.tensorboard);
  absl::Status status = metrics.status();
  if (status.ok()) status = ServeRequests();
  HandOnStops(false);
  for (auto& model : models_) served_.Add(model->Stop());
  // Of a shard that could not end its recording.
  if (status.ok() && !absl::IsCancelled(cancellation_.status())) {
    status = cancellation_.status();
  }
  timeline_.reset();  // which asks the session's member for the clock
  if (metrics.ok()) metrics->Write(End());
  if (status.ok()) {
    LogInfo("ps $0: the job has ended", job.rank());
    return status;
  }
  return member.Leave(status, Now() + absl::Seconds(2));
}

}  // namespace

absl::Status RunServer(const ServerOptions& options, Cancellation& cancellation,
                       SoftStop* soft_stop) {
  ServerRun run(options, cancellation, soft_stop);
  if (absl::Status s = run.Join(); !s.ok()) return s;
  return run.Serve();
}

}  // namespace psring
