#include "ps/served_model.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/figures.h"
#include "common/cluster/model_opening.h"
#include "common/counted.h"
#include "common/log.h"
#include "common/optim/policies.h"
#include "ps/shard_map.h"

namespace psring {
namespace {

// Adds what a shard has done to the figures of its process, which has others.
std::function<void(const ServingStats&)> AddsTo(FigureBoard& board) {
  return [&board, told = ServingStats()](const ServingStats& now) mutable {
    board.Update([&](proto::Figures& all) {
      const StalenessStats& stale = now.staleness;
      all.set_updates(all.updates() + stale.updates - told.staleness.updates);
      all.set_staleness_sum(all.staleness_sum() + stale.sum -
                            told.staleness.sum);
      all.set_staleness_max(std::max(all.staleness_max(), stale.max));
      all.set_late_gradients(all.late_gradients() + now.num_late() -
                             told.num_late());
      all.set_bytes_sent(all.bytes_sent() + now.bytes_sent - told.bytes_sent);
      all.set_bytes_received(all.bytes_received() + now.bytes_received -
                             told.bytes_received);
    });
    told = now;
  };
}

// Without what scripts add to their gradients: python/psring/torch.
int64_t NumParameters(const Layout& layout) {
  int64_t number = layout.num_parameters();
  for (int i = 0; i < static_cast<int>(layout.tensors().size()); ++i) {
    if (absl::StartsWith(layout.tensors()[i].name(), "psring: ")) {
      number -= layout.tensor(i).size();
    }
  }
  return number;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Open(
    Context& context, Cancellation& cancellation, Member& member,
    const proto::Welcome& request, const ServedModelOptions& options) {
  const proto::JobSpec& spec = request.spec();
  if (request.workers_size() != member.job().workers_size() ||
      request.servers_size() != member.job().servers_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", request.model_id(), "' is opened for ",
                     Counted(request.workers_size(), "worker"), " and ",
                     Counted(request.servers_size(), "server"),
                     ", which this job does not have"));
  }
  if (absl::Status s = CheckPolicies(spec, request.workers_size()); !s.ok()) {
    return s;
  }
  auto layout = Layout::Create({spec.tensors().begin(), spec.tensors().end()},
                               spec.bucket_bytes());
  if (!layout.ok()) return layout.status();
  std::unique_ptr<ServedModel> model(
      new ServedModel(member, *std::move(layout), options));
  if (absl::Status s = model->Listen(context, cancellation); !s.ok()) return s;
  auto part = model->Part();
  if (!part.ok()) return part.status();
  auto job = AnswerModel(member, request, *part, Now() + options.step_timeout);
  if (!job.ok()) return job.status();
  model->job_ = *std::move(job);
  if (options.same_host == SameHost::kAuto) {
    model->host_workers_ = FindHostWorkers(model->layout_, model->job_);
  }
  return model;
}

absl::Status ServedModel::Listen(Context& context, Cancellation& cancellation) {
  for (int i = 0; i < options_.shards; ++i) {
    auto shard = ShardThread::Start(context, options_.address, cancellation);
    if (!shard.ok()) return shard.status();
    shards_.push_back(*std::move(shard));
  }
  return absl::OkStatus();
}

absl::StatusOr<proto::ModelPart> ServedModel::Part() {
  proto::ModelPart part;
  for (const auto& shard : shards_) part.add_endpoints(shard->endpoint());
  if (options_.same_host == SameHost::kOff || !options_.published) return part;
  auto pushes = ShmArena::Create(
      static_cast<int64_t>(shards_.size() * sizeof(WakeCount)));
  if (!pushes.ok()) return pushes.status();
  pushes_ = *std::move(pushes);
  *part.mutable_shared_memory() = pushes_->address();
  for (const auto& shard : shards_) {
    part.mutable_shared_memory()->add_doorbell_fds(shard->doorbell_fd());
  }
  return part;
}

void ServedModel::Serve(Timeline* timeline) {
  const std::vector<ShardPlace> places = MapShards(layout_, job_);
  size_t mine = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].server != job_.rank()) continue;
    WakeCount* const pushes =
        pushes_ == nullptr
            ? nullptr
            : reinterpret_cast<WakeCount*>(pushes_->data()) + mine;
    shards_[mine++]->Serve(
        {{.job = job_,
          .shard = static_cast<int>(i),
          .host_workers = host_workers_,
          .pushes = pushes,
          .steps = {
              .step_timeout = options_.step_timeout,
              .on_step = [this](int64_t step) { member_.ReportStep(step); },
              .workers_left = [this] { return member_.workers_left(); }},
          .track = AddTrack(timeline, absl::StrCat("shard ", i)),
          .on_stats = AddsTo(member_.figures()),
          .activity = member_.activities().Add()},
         layout_,
         places[i].ranges});
  }
  const std::string word = absl::StrCat(
      "serves ", NumParameters(layout_), " parameters of ", job_.spec().model(),
      " to ", Counted(job_.workers_size(), "worker"));
  LogInfo("ps $0 $1", job_.rank(), word);
  member_.figures().Update(
      [&](proto::Figures& all) { all.set_last_word(word); });
}

ServingStats ServedModel::Stop() {
  ServingStats all;
  for (auto& shard : shards_) all.Add(shard->Stop());
  return all;
}

}  // namespace psring
