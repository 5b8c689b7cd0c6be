#include "ps/shard_server.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/frame.h"
#include "common/optim/sync_policy.h"
#include "ps/shard_map.h"

namespace psring {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);
constexpr int kMessagesAtOnce = 64;
// How often a thread that does not sleep for want of pushes looks for messages.
constexpr absl::Duration kListenEvery = absl::Milliseconds(1);

// Whether a step closes with the gradients of all workers, and nothing happens
// before.
bool StepsAreTogether(const proto::JobSpec& spec) {
  return TakesEveryGradient(spec) && spec.replay_dir().empty();
}

}  // namespace

ShardServer::ShardServer(Socket& socket, Doorbell& doorbell,
                         const ShardServerOptions& options,
                         const Layout& layout, Shard& shard)
    : socket_(socket),
      doorbell_(doorbell),
      options_(options),
      pieces_(layout, shard.ranges()),
      replies_(
          [&socket](DataMessage reply) {
            SendData(socket, std::move(reply)).IgnoreError();
          },
          options_.job),
      host_(options_.host_workers, options_.shard, pieces_.buckets(),
            options_.pushes,
            /*together=*/StepsAreTogether(options_.job.spec()),
            HasCoreForEach(options_.job)),
      requests_({options_.job, layout, pieces_, shard, host_, replies_,
                 options_.track},
                options_.steps, options_.codec, socket.endpoint()) {}

absl::Status ShardServer::Run(const Cancellation& stop) {
  // Also how late it may learn of a push that nothing follows from yet.
  const absl::Duration tick = std::min(kTick, options_.steps.step_timeout / 4);
  Time next_check = Now() + tick;
  Time next_listen = Now();
  bool deadlines_due = false;
  bool heard_all = true;  // of what had come when it last listened
  Socket* const sockets[] = {&socket_};
  const int fds[] = {stop.fd(), doorbell_.fd()};
  while (true) {
    TimelineSpan idle(options_.track, "idle");
    if (host_.PrepareToSleep()) {
      options_.activity->Wait();
      const auto message = WaitForMessage(sockets, fds, next_check);
      if (!message.ok()) return message.status();
      next_listen = *message ? Time::InfinitePast() : Now() + kListenEvery;
      host_.WakeUp();
      doorbell_.Clear();
    }
    options_.activity->Work("serving");
    idle.End();
    if (!stop.status().ok()) return absl::OkStatus();
    // What has been pushed until then is known below, however long updates
    // take.
    const Time looked = Now();
    host_.Poll([this](int worker, int bucket, int64_t step) {
      return requests_.OnArenaPush(worker, bucket, step);
    });
    host_.TellAnswers();
    Time now = Now();
    if (now >= next_listen) {
      const auto all = HandleMessages();
      if (!all.ok()) return all.status();
      heard_all = *all;
      host_.TellAnswers();
      now = Now();
      next_listen = now + kListenEvery;
    }
    if (!steps().failure().ok()) return steps().failure();
    if (now >= next_check) {
      next_check = now + tick;
      deadlines_due = true;
      if (options_.on_stats != nullptr) options_.on_stats(stats());
      steps().ReleaseFromThoseWhoLeft();
      host_.TellAnswers();
    }
    if (!deadlines_due || !heard_all) continue;
    deadlines_due = false;
    if (absl::Status late =
            steps().CheckDeadlines(looked, requests_.last_message());
        !late.ok()) {
      return late;
    }
  }
}

ServingStats ShardServer::stats() const {
  return {.staleness = requests_.steps().staleness(),
          .late_gradients = requests_.steps().late_gradients(),
          .bytes_sent = socket_.bytes_sent(),
          .bytes_received = socket_.bytes_received()};
}

// A few at a time, so that nobody can keep it from the doorbell and the clock.
absl::StatusOr<bool> ShardServer::HandleMessages() {
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    auto frames = socket_.TryReceive();
    if (!frames.ok()) return frames.status();
    if (!frames->has_value()) return true;
    requests_.OnMessage(*std::move(*frames));
  }
  return false;
}

}  // namespace psring
