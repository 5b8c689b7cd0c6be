#include "common/cluster/member_news.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/cluster/membership.h"
#include "common/printable.h"

namespace psring {

absl::Status MemberNews::Take(const proto::ControlMessage& message, Time now) {
  if (ended_) return absl::OkStatus();
  if (message.has_refuse()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the coordinator at ", coordinator_,
        " refuses this process: ", Printable(message.refuse().reason())));
  }
  if (message.has_job_end()) {
    if (message.job_end().error().empty()) {
      ended_ = true;
      return absl::OkStatus();
    }
    hang_ = message.job_end().hang();
    return absl::AbortedError(Printable(message.job_end().error()));
  }
  if (message.has_welcome()) roster_ = message.welcome();
  if (message.has_seat()) return OnSeat(message.seat().rank());
  if (message.has_announce()) OnAnnouncement(message.announce());
  if (message.has_gathered() && awaited_.contains(message.gathered().name())) {
    gathered_[message.gathered().name()] = message.gathered();
  }
  if (message.has_heartbeat_ack() && message.heartbeat_ack().sent_ns() > 0) {
    const proto::HeartbeatAck& ack = message.heartbeat_ack();
    const Time heard = Time::FromNanos(ack.heard_ns());
    monotonic_ =
        Better(monotonic_, OffsetOf(Time::FromNanos(ack.sent_ns()), heard,
                                    heard, now + TimeStopped()));
    coordinator_stopped_ = absl::Nanoseconds(ack.stopped_ns());
  }
  return absl::OkStatus();
}

std::optional<ClockOffset> MemberNews::clock() const {
  std::optional<ClockOffset> clock = monotonic_;
  if (clock.has_value()) {
    clock->ahead += TimeStopped() - coordinator_stopped_;
    clock->at = clock->at - TimeStopped();
  }
  return clock;
}

// The roster has come before it, once.
absl::Status MemberNews::OnSeat(int rank) {
  if (arrived_.has_value()) return absl::OkStatus();
  const int size =
      role_ == proto::WORKER ? roster_.workers_size() : roster_.servers_size();
  if (rank < 0 || rank >= size) {
    return absl::InternalError(absl::StrCat("the coordinator at ", coordinator_,
                                            " gives this process rank ", rank,
                                            " of ", size));
  }
  arrived_ = std::move(roster_);
  arrived_->set_rank(rank);
  return absl::OkStatus();
}

std::optional<proto::Gathered> MemberNews::TakeGathered(
    const std::string& name) {
  awaited_.erase(name);
  auto found = gathered_.extract(name);
  if (found.empty()) return std::nullopt;
  return std::move(found.mapped());
}

void MemberNews::OnAnnouncement(const proto::Announce& announcement) {
  if (announcement.name() != kWorkerLeft) {
    announced_.push_back(announcement);
    return;
  }
  for (const auto text : absl::StrSplit(announcement.payload(), ',')) {
    int rank = 0;
    if (!arrived_ || !absl::SimpleAtoi(text, &rank)) continue;
    if (rank < 0 || rank >= arrived_->workers_size()) continue;
    workers_left_.push_back(rank);
  }
}

}  // namespace psring
