#include "ps/shard_server.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/membership.h"
#include "common/log.h"
#include "common/optim/job_plan.h"
#include "common/optim/sync_policy.h"
#include "ps/directory_probe.h"
#include "ps/shard_map.h"

namespace psring {
namespace {

using proto::WireHeader;

constexpr absl::Duration kTick = absl::Milliseconds(500);
constexpr int kMessagesAtOnce = 64;
// How often a thread that does not sleep for want of pushes looks for messages.
constexpr absl::Duration kListenEvery = absl::Milliseconds(1);

// Whether a step closes with the gradients of all workers, and nothing happens
// before.
bool StepsAreTogether(const proto::JobSpec& spec) {
  return PolicyOf(spec).barrier && spec.backup_workers() == 0 &&
         spec.replay_dir().empty();
}

// Where a checkpoint lies is worker 0's to say.
absl::Status CheckNamesDirectory(const WireHeader& header) {
  if (header.sender() == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(WireHeader::Kind_Name(header.kind()), " from worker ",
                   header.sender(), ": worker 0 alone names directories"));
}

absl::Status TooEarly(absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, " before the first parameters"));
}

}  // namespace

ShardServer::ShardServer(Socket& socket, Doorbell& doorbell,
                         const ShardServerOptions& options,
                         const Layout& layout, Shard& shard)
    : socket_(socket),
      doorbell_(doorbell),
      options_(options),
      layout_(layout),
      shard_(shard),
      num_workers_(options_.job.workers_size()),
      num_rates_(NumRates(options_.job.spec())),
      pieces_(layout, shard.range()),
      replies_(socket, options_.job),
      host_(options_.host_workers, options_.shard, pieces_.buckets(),
            options_.pushes,
            /*together=*/StepsAreTogether(options_.job.spec()),
            HasCoreForEach(options_.job)),
      steps_({options_.job, layout, pieces_, shard, host_, replies_,
              options_.track},
             options_.steps),
      last_message_(num_workers_, Now()),
      peers_(socket.endpoint()) {
  // A script tells of its optimizer's state even where that is zero.
  const bool resumes = FirstExchange(options_.job.spec()) > 0 ||
                       options_.job.spec().rates_from_workers();
  const int last_slot = resumes ? shard.num_slots() : 0;
  for (int i = 0; i < pieces_.size(); ++i) {
    for (int slot = 0; slot <= last_slot; ++slot) {
      missing_init_.insert({slot, i});
    }
  }
}

absl::Status ShardServer::Run(const Cancellation& stop) {
  // Also how late it may learn of a push that nothing follows from yet.
  const absl::Duration tick = std::min(kTick, options_.steps.step_timeout / 4);
  Time next_check = Now() + tick;
  Time next_listen = Now();
  Socket* const sockets[] = {&socket_};
  const int fds[] = {stop.fd(), doorbell_.fd()};
  while (true) {
    TimelineSpan idle(options_.track, "idle");
    if (host_.Sleep()) {
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
    host_.Poll([this](int worker, int bucket, int64_t step) {
      return OnArenaPush(worker, bucket, step);
    });
    host_.TellAnswers();
    Time now = Now();
    if (now >= next_listen) {
      if (absl::Status s = HandleMessages(); !s.ok()) return s;
      host_.TellAnswers();
      now = Now();
      next_listen = now + kListenEvery;
    }
    if (!steps_.failure().ok()) return steps_.failure();
    if (now < next_check) continue;
    next_check = now + tick;
    if (options_.on_totals != nullptr) options_.on_totals(Totals());
    steps_.ReleaseFromThoseWhoLeft();
    host_.TellAnswers();
    if (absl::Status late = steps_.CheckDeadlines(now, last_message_);
        !late.ok()) {
      return late;
    }
  }
}

ServingTotals ShardServer::Totals() const {
  const StalenessStats& stale = staleness();
  const std::vector<int64_t>& late = late_gradients();
  return {
      .updates = stale.updates,
      .staleness_sum = stale.sum,
      .staleness_max = stale.max,
      .late_gradients = std::accumulate(late.begin(), late.end(), int64_t{0}),
      .bytes_sent = socket_.bytes_sent(),
      .bytes_received = socket_.bytes_received()};
}

// A few at a time, so that nobody can keep it from the doorbell and the clock.
absl::Status ShardServer::HandleMessages() {
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    auto frames = socket_.TryReceive();
    if (!frames.ok()) return frames.status();
    if (!frames->has_value()) return absl::OkStatus();
    const std::string peer((**frames)[0].view());
    if (!peers_.Hears(peer)) continue;
    auto message = ParseData(*std::move(*frames), /*at_router=*/true);
    const absl::Status handled =
        message.ok() ? Handle(*std::move(message)) : message.status();
    if (!handled.ok()) peers_.Drop(peer, handled);
  }
  return absl::OkStatus();
}

// A worker of this host has pushed its gradients of a bucket.
bool ShardServer::OnArenaPush(int worker, int bucket, int64_t step) {
  last_message_[worker] = Now();
  TimelineSpan span(
      options_.track, "receive",
      {.step = step, .bucket = bucket, .peer = worker, .peer_role = "worker"});
  // Copied before they are checked: the worker could change them.
  const std::vector<double> rates(host_.rates(worker),
                                  host_.rates(worker) + num_rates_);
  absl::Status status = initialised() ? CheckRates(rates) : TooEarly("a push");
  for (int piece : pieces_.of_bucket(bucket)) {
    if (!status.ok()) break;
    Push push;
    push.gradient = host_.gradients(worker, pieces_[piece].range.begin);
    push.in_arena = true;
    push.rates.assign(rates.begin(), rates.end());
    status = steps_.OnPush(piece, worker, step, std::move(push));
  }
  if (status.ok()) return true;
  ++malformed_pushes_;
  LogWarning("ignores $0 from now on: $1",
             Describe(options_.job.workers(worker)), status.message());
  return false;
}

absl::Status ShardServer::Handle(DataMessage message) {
  const WireHeader& header = message.header;
  if (header.job_epoch() != options_.job.job_epoch()) {
    return absl::InvalidArgumentError("a message of another job");
  }
  if (header.sender() >= static_cast<uint32_t>(num_workers_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", header.sender(), " of a job of ", num_workers_));
  }
  last_message_[header.sender()] = Now();
  switch (header.kind()) {
    case WireHeader::INIT:
      return OnInit(message);
    case WireHeader::PULL:
      return OnPull(message);
    case WireHeader::PUSH:
      return OnPush(std::move(message));
    case WireHeader::PROBE_DIR:
      return OnProbeDirectory(message);
    case WireHeader::SAVE:
      return OnSave(message);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          WireHeader::Kind_Name(header.kind()), " is not for a server"));
  }
}

absl::Status ShardServer::OnInit(const DataMessage& message) {
  const WireHeader& header = message.header;
  const auto piece = pieces_.Find(header, WireHeader::FLOAT32);
  if (!piece.ok()) return piece.status();
  const int slot = static_cast<int>(header.slot());
  if (header.sender() != 0 || slot < 0 || slot > shard_.num_slots()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first state of slot ", slot, " from worker ", header.sender()));
  }
  if (missing_init_.erase({slot, *piece}) == 0) return absl::OkStatus();
  shard_.Set(slot, pieces_[*piece].range, message.payload.data());
  if (!initialised()) return absl::OkStatus();
  for (const DataMessage& pull : std::exchange(parked_pulls_, {})) {
    if (absl::Status s = OnPull(pull); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status ShardServer::OnPull(const DataMessage& message) {
  const auto piece = pieces_.Find(message.header, WireHeader::FLOAT32);
  if (!piece.ok()) return piece.status();
  if (!initialised()) {
    DataMessage parked;
    parked.peer = message.peer;
    parked.header = message.header;
    parked_pulls_.push_back(std::move(parked));
    return absl::OkStatus();
  }
  return steps_.OnPull(*piece, static_cast<int>(message.header.sender()),
                       message.peer);
}

absl::Status ShardServer::OnPush(DataMessage message) {
  if (!initialised()) return TooEarly("a push");
  const GradientCodec* codec = options_.codec;
  const auto found =
      pieces_.Find(message.header, codec == nullptr ? WireHeader::FLOAT32
                                                    : WireHeader::ENCODED);
  if (!found.ok()) return found.status();
  const Piece& piece = pieces_[*found];
  const int worker = static_cast<int>(message.header.sender());
  const int64_t step = message.header.step();
  TimelineSpan span(options_.track, "receive", ArgsOf(worker, step, piece));
  Push push;
  push.peer = std::move(message.peer);
  if (codec == nullptr) {
    push.payload = std::move(message.payload);
  } else {
    push.payload = Frame::OfSize(piece.range.size() * sizeof(float));
    if (absl::Status s = codec->Decode(piece.range, message.payload.view(),
                                       push.payload.data());
        !s.ok()) {
      return s;
    }
  }
  push.gradient = push.payload.data();
  push.rates.assign(message.header.rates().begin(),
                    message.header.rates().end());
  if (absl::Status s = CheckRates(push.rates); !s.ok()) return s;
  return steps_.OnPush(*found, worker, step, std::move(push));
}

absl::Status ShardServer::CheckRates(absl::Span<const double> rates) const {
  if (static_cast<int>(rates.size()) != num_rates_) {
    return absl::InvalidArgumentError(absl::StrCat(
        rates.size(), " learning rates where ", num_rates_, " are due"));
  }
  for (const double rate : rates) {
    if (rate >= 0 && std::isfinite(rate)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a learning rate of ", rate));
  }
  return absl::OkStatus();
}

absl::Status ShardServer::OnProbeDirectory(const DataMessage& message) {
  if (absl::Status s = CheckNamesDirectory(message.header); !s.ok()) return s;
  replies_.Done(message.peer,
                ProbeDirectory(std::string(message.payload.view())));
  return absl::OkStatus();
}

absl::Status ShardServer::OnSave(const DataMessage& message) {
  if (absl::Status s = CheckNamesDirectory(message.header); !s.ok()) return s;
  if (!initialised()) return TooEarly("SAVE");
  const auto saved = shard_.Save(std::string(message.payload.view()), layout_);
  if (saved.ok()) {
    replies_.Saved(message.peer, *saved);
  } else {
    replies_.Done(message.peer, saved.status());
  }
  return absl::OkStatus();
}

}  // namespace psring
