// The thread of a Member: what it sends to the coordinator, what it hears from
// it, and when it has heard nothing for too long.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "common/cluster/process_names.h"
#include "common/log.h"
#include "common/net/greeting.h"
#include "common/printable.h"

namespace psring {
namespace {

using proto::ControlMessage;

// Between questions to the coordinator of an earlier job.
constexpr absl::Duration kNextJobInterval = absl::Milliseconds(200);
constexpr size_t kMaxReasonBytes = 500;
constexpr int kMessagesAtOnce = 64;

SocketOptions ControlOptions() {
  SocketOptions options;
  options.plane = SocketOptions::Plane::kControl;
  options.linger = absl::Seconds(1);
  return options;
}

}  // namespace

void Member::Run(Context& context) {
  std::unique_ptr<Socket> socket;
  last_heard_ = Now();
  next_join_ = last_heard_;
  Time next_beat = last_heard_;
  while (wake_.status().ok()) {
    if (Now() >= next_join_) {
      next_join_ = Time::InfiniteFuture();
      auto connected =
          Socket::Connect(context, options_.coordinator, ControlOptions());
      if (!connected.ok()) return Fail(connected.status());
      socket = *std::move(connected);
      Introduce(context);
    }
    const bool cancelled = !cancellation_.status().ok();
    const int fds[] = {outbox_fd_, wake_.fd(), cancellation_.fd()};
    // A cancelled process's fd stays readable: it is no longer waited for.
    Wait({socket.get()}, absl::MakeConstSpan(fds, cancelled ? 2 : 3),
         std::min(next_beat, next_join_))
        .IgnoreError();
    if (absl::Status why = cancellation_.status(); !why.ok()) Fail(why);
    Receive(*socket);
    const Time now = Now();
    if (now >= next_beat) {
      next_beat = now + kHeartbeatInterval;
      Post(Beat(now));
    }
    CheckCoordinator(now);
    SendOutbox(*socket);
  }
  if (socket == nullptr) return;
  SendOutbox(*socket);
  socket->Acknowledge();
}

void Member::Introduce(const Context& context) {
  ControlMessage message;
  proto::Join& join = *message.mutable_join();
  join = options_.join;
  if (join.protocol_version() == 0) join.set_protocol_version(kProtocolVersion);
  join.set_public_key(context.public_key());
  Post(std::move(message));
}

// This process's job is still to come. It needs a connection of its own: a
// socket goes on where it was with the peer that it had.
void Member::OnEarlierJob(const std::string& reason) {
  next_join_ = Now() + kNextJobInterval;
  const bool first = earlier_job_.empty();
  earlier_job_ = Printable(reason, kMaxReasonBytes);
  if (!first) return;
  LogInfo(
      "the coordinator at $0 is of an earlier job ($1); waits for the next "
      "job's",
      options_.coordinator, earlier_job_);
}

ControlMessage Member::Beat(Time now) {
  ControlMessage message;
  proto::Heartbeat& beat = *message.mutable_heartbeat();
  activity_ = activities_.Look(now);
  if (activity_.doing != nullptr) beat.set_doing(activity_.doing);
  beat.set_still_ms(absl::ToInt64Milliseconds(activity_.still));
  // Who has done its part may wait for others as long as they take.
  if (activity_.waits_at != nullptr && !left_) {
    beat.set_waits_at(activity_.waits_at);
    beat.set_waiting_ms(absl::ToInt64Milliseconds(activity_.waited));
  }
  *beat.mutable_figures() = figures_.Take(coordinator_clock());
  beat.set_step(step_.load());
  beat.set_sent_ns(MonotonicNanos());
  return message;
}

void Member::TellWait(const std::string& held_up_by) {
  const bool waits = activity_.waits_at != nullptr && !left_;
  if (!waits || activity_.waited < kLongWait) {
    next_told_wait_ = kLongWait;
    return;
  }
  if (held_up_by.empty() || activity_.waited < next_told_wait_) return;
  next_told_wait_ = 2 * activity_.waited;
  LogWarning("step $0: has waited for $1 s at $2 for $3", step_.load(),
             absl::ToInt64Seconds(activity_.waited), activity_.waits_at,
             CleanWord(held_up_by));
}

void Member::SendOutbox(Socket& socket) {
  uint64_t count = 0;
  [[maybe_unused]] ssize_t got = read(outbox_fd_, &count, sizeof(count));
  std::deque<ControlMessage> messages;
  {
    MutexLock lock(&mutex_);
    messages.swap(outbox_);
  }
  for (const ControlMessage& message : messages) {
    Frames frames;
    frames.push_back(Frame::Copy(message.SerializeAsString()));
    if (absl::Status s = socket.Send(std::move(frames)); !s.ok()) Fail(s);
  }
}

bool Member::NamesThisAsHung(const absl::Status& failure) {
  MutexLock lock(&mutex_);
  const std::optional<proto::Welcome>& job = news_.arrived();
  if (failure.ok() || !news_.hang() || !job.has_value()) return false;
  const auto& processes = is_worker() ? job->workers() : job->servers();
  return absl::StartsWith(failure.message(),
                          Describe(processes.Get(job->rank())));
}

// A few at a time, so that a coordinator cannot keep it from its own words.
void Member::Receive(Socket& socket) {
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    auto frames = socket.TryReceive();
    if (!frames.ok()) return Fail(frames.status());
    if (!frames->has_value()) return;
    ControlMessage message;
    if ((*frames)->size() != 1 ||
        !message.ParseFromString(std::string((**frames)[0].view()))) {
      return Fail(absl::InternalError(
          absl::StrCat("what answers at ", options_.coordinator,
                       " is not a psring coordinator of this version")));
    }
    if (message.refuse().next_job_may_come()) {
      OnEarlierJob(message.refuse().reason());
      continue;
    }
    last_heard_ = Now();
    if (message.has_heartbeat_ack()) {
      TellWait(message.heartbeat_ack().held_up_by());
    }
    absl::Status failure;
    {
      MutexLock lock(&mutex_);
      if (first_heard_ == Time::InfinitePast()) first_heard_ = last_heard_;
      if (failure_.ok()) failure = news_.Take(message, last_heard_);
    }
    if (options_.on_hang && NamesThisAsHung(failure)) options_.on_hang();
    if (!failure.ok()) Fail(std::move(failure));
  }
}

std::string Member::CoordinatorName() {
  MutexLock lock(&mutex_);
  const std::optional<proto::Welcome>& job = news_.arrived();
  if (!job.has_value()) return "the coordinator";
  for (const auto* list : {&job->servers(), &job->workers()}) {
    for (const proto::Process& process : *list) {
      if (process.hosts_coordinator()) {
        return absl::StrCat(Describe(process), ", which hosts the coordinator");
      }
    }
  }
  return "the coordinator";
}

void Member::CheckCoordinator(Time now) {
  const absl::Duration silent = now - last_heard_;
  bool ever_heard = false;
  {
    MutexLock lock(&mutex_);
    if (news_.ended() || !failure_.ok()) return;
    ever_heard = first_heard_ != Time::InfinitePast();
  }
  if (!ever_heard) {
    if (silent <= options_.join_timeout) return;
    return Fail(absl::DeadlineExceededError(absl::StrCat(
        "no coordinator has answered at ", options_.coordinator, " within ",
        absl::FormatDuration(options_.join_timeout),
        earlier_job_.empty()
            ? absl::StrCat(": ", DescribeListener(options_.coordinator))
            : absl::StrCat(", except one of an earlier job (", earlier_job_,
                           ")"),
        ". Is one started there (by rank 0 of a script, or by "
        "--host-coordinator), and is the address reachable from this host?")));
  }
  if (silent <= heartbeat_timeout()) return;
  Fail(absl::UnavailableError(absl::StrCat(
      "lost ", CoordinatorName(), " at ", options_.coordinator, ", at step ",
      step_.load(), " of this process: last heard from ",
      absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(100))),
      " ago")));
}

// Whoever wakes from a wait here finds the process cancelled already.
void Member::Fail(absl::Status why) {
  MutexLock lock(&mutex_);
  if (!failure_.ok() || news_.ended()) return;
  cancellation_.Cancel(why);
  failure_ = std::move(why);
}

}  // namespace psring
