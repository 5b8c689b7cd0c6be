#include "common/cluster/membership.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/cluster/admission.h"
#include "common/cluster/announcements.h"
#include "common/cluster/figures.h"
#include "common/cluster/process_names.h"
#include "common/printable.h"

namespace psring {
namespace {

using proto::ControlMessage;

constexpr int64_t kMostMs = int64_t{1} << 40;
// Of what anybody may announce: all others keep it.
constexpr size_t kMostOfName = 4096;
constexpr size_t kMostOfNumber = 32;
// Sooner than kSilentAfter: an engine restarts a lost process within a second.
constexpr absl::Duration kMissed = absl::Milliseconds(1500);

// Of a process that may have made no step, or count none, as a script may.
std::string AtStep(int64_t step) {
  return step > 0 ? absl::StrCat(" at step ", step) : "";
}

}  // namespace

int Membership::Promised(proto::Role role) const {
  return options_.promised(role);
}

int Membership::Joined(proto::Role role) const {
  return static_cast<int>(std::count_if(
      members_.begin(), members_.end(),
      [role](const auto& m) { return m.second.process.role() == role; }));
}

std::vector<Membership::Outgoing> Membership::OnMessage(
    Time now, const std::string& peer, const ControlMessage& message) {
  if (!over()) latest_ = now;
  if (message.has_join()) return OnJoin(now, peer, message.join());
  const auto found = members_.find(peer);
  if (found == members_.end()) return {};  // never joined: nothing to say
  Participant& member = found->second;
  member.last_heard = now;
  switch (message.kind_case()) {
    case ControlMessage::kHeartbeat:
      return OnHeartbeat(now, peer, member, message.heartbeat());
    case ControlMessage::kGather:
      return OnGather(member, message.gather());
    case ControlMessage::kAnnounce:
      return OnAnnounce(member, message.announce());
    case ControlMessage::kLeave:
      return OnLeave(now, member, message.leave());
    default:
      return {};
  }
}

std::vector<Membership::Outgoing> Membership::OnMalformed(
    const std::string& peer) {
  const auto found = members_.find(peer);
  if (found == members_.end() || found->second.left || over()) return {};
  return End(absl::AbortedError(absl::StrCat(
      Named(found->second), " has sent what is no message of psring's")));
}

std::vector<Membership::Outgoing> Membership::OnHeartbeat(
    Time now, const std::string& peer, Participant& member,
    const proto::Heartbeat& beat) {
  member.step = std::max(member.step, beat.step());
  member.doing = CleanWord(beat.doing());
  member.progress = now - absl::Milliseconds(beat.still_ms());
  member.waits_at = CleanWord(beat.waits_at());
  member.waiting =
      absl::Milliseconds(std::clamp<int64_t>(beat.waiting_ms(), 0, kMostMs));
  member.figures = CleanFigures(beat.figures());
  if (member.WaitsLong() && !culprit_.has_value())
    culprit_ = FindCulprit(members_, now);
  ControlMessage ack;
  ack.mutable_heartbeat_ack()->set_sent_ns(beat.sent_ns());
  const absl::Duration stopped = TimeStopped();
  ack.mutable_heartbeat_ack()->set_heard_ns((now + stopped).nanos());
  ack.mutable_heartbeat_ack()->set_stopped_ns(
      absl::ToInt64Nanoseconds(stopped));
  ack.mutable_heartbeat_ack()->set_held_up_by(HeldUpBy(now, member));
  return {{peer, std::move(ack)}};
}

std::vector<Membership::Outgoing> Membership::OnJoin(Time now,
                                                     const std::string& peer,
                                                     const proto::Join& join) {
  if (members_.contains(peer)) return {};
  first_join_ = std::min(first_join_, now);
  if (const auto objection = Objection(join)) {
    if (over()) ++num_told_;
    last_refused_ =
        absl::StrCat(Describe(join), " was refused: ", Printable(*objection));
    ControlMessage refusal;
    refusal.mutable_refuse()->set_reason(*objection);
    refusal.mutable_refuse()->set_next_job_may_come(NextJobMayCome(now, join));
    return {{peer, refusal}};
  }
  Participant member;
  member.process.set_role(join.role());
  member.process.set_rank(-1);
  member.process.set_host(join.host());
  member.process.set_boot(join.boot());
  member.process.set_pid(join.pid());
  member.process.set_address(join.address());
  member.process.set_hosts_coordinator(join.hosts_coordinator());
  member.process.set_public_key(join.public_key());
  member.wanted_rank = join.wanted_rank();
  member.progress_timeout = absl::Milliseconds(join.progress_timeout_ms());
  member.last_heard = now;
  members_[peer] = member;
  join_order_.push_back(peer);
  if (!join.failure().empty()) {
    member.process.set_rank(join.wanted_rank());
    return End(absl::AbortedError(
        absl::StrCat(Describe(member.process),
                     " failed before it joined: ", Printable(join.failure()))));
  }
  const bool complete = Joined(proto::PS) == options_.num_servers &&
                        Joined(proto::WORKER) == options_.num_workers;
  return complete ? WelcomeAll() : std::vector<Outgoing>();
}

// A process that comes to a job that was complete has been started again, as
// its engine does that restarts lost processes: so will be whoever has the
// coordinator, unless it has said so itself. One that is lost may not be missed
// yet.
bool Membership::NextJobMayCome(Time now, const proto::Join& join) const {
  if (join.protocol_version() != kProtocolVersion) return false;
  bool hosted = false, silent = false;
  for (const auto& [peer, member] : members_) {
    hosted |= member.process.hosts_coordinator();
    silent |= !member.left && now - member.last_heard > kMissed;
  }
  if (options_.may_come_again) {
    return over() ? !result_.ok() : silent || was_complete_;
  }
  return was_complete_ && hosted && (over() || silent);
}

std::optional<std::string> Membership::Objection(
    const proto::Join& join) const {
  if (state_ == State::kOver && join.protocol_version() == kProtocolVersion) {
    return absl::StrCat("the job is over: ",
                        result_.ok() ? "it has finished" : result_.message());
  }
  std::vector<Seated> seated;
  for (const auto& [peer, member] : members_) {
    seated.push_back({&member.process, member.wanted_rank});
  }
  return ObjectionTo(join, options_, seated);
}

void Membership::AssignRanks(proto::Role role) {
  std::vector<bool> taken(Promised(role), false);
  for (auto& [peer, member] : members_) {
    if (member.process.role() != role || member.wanted_rank < 0) continue;
    member.process.set_rank(member.wanted_rank);
    taken[member.wanted_rank] = true;
  }
  int next = 0;
  for (const std::string& peer : join_order_) {
    Participant& member = members_[peer];
    if (member.process.role() != role || member.process.rank() >= 0) continue;
    while (taken[next]) ++next;
    member.process.set_rank(next);
    taken[next] = true;
  }
}

std::vector<Membership::Outgoing> Membership::WelcomeAll() {
  AssignRanks(proto::PS);
  AssignRanks(proto::WORKER);
  state_ = State::kRunning;
  was_complete_ = true;
  proto::Welcome welcome;
  welcome.set_job_epoch(options_.job_epoch);
  welcome.set_heartbeat_timeout_ms(
      absl::ToInt64Milliseconds(options_.heartbeat_timeout));
  for (int i = 0; i < options_.num_servers; ++i) welcome.add_servers();
  for (int i = 0; i < options_.num_workers; ++i) welcome.add_workers();
  for (const auto& [peer, member] : members_) {
    auto* list = member.process.role() == proto::PS ? welcome.mutable_servers()
                                                    : welcome.mutable_workers();
    *list->Mutable(member.process.rank()) = member.process;
  }
  ControlMessage message;
  *message.mutable_welcome() = std::move(welcome);
  auto out = ToAll(std::move(message), [](const Participant&) { return true; });
  for (const auto& [peer, member] : members_) {
    ControlMessage seat;
    seat.mutable_seat()->set_rank(member.process.rank());
    out.push_back({peer, std::move(seat)});
  }
  return out;
}

template <typename Receives>
std::vector<Membership::Outgoing> Membership::ToAll(
    ControlMessage message, const Receives& receives) const {
  const auto shared =
      std::make_shared<const ControlMessage>(std::move(message));
  std::vector<Outgoing> out;
  for (const auto& [peer, member] : members_) {
    if (receives(member)) out.push_back({peer, shared});
  }
  return out;
}

std::vector<Membership::Outgoing> Membership::OnGather(
    const Participant& member, const proto::Gather& gather) {
  if (state_ != State::kRunning) return {};
  const proto::Role role = member.process.role();
  auto answer = gathers_.Add(member.process, Promised(role), gather);
  if (!answer.ok()) return End(answer.status());
  if (!answer->has_value()) return {};
  const std::vector<int> ranks = std::move((*answer)->ranks);
  ControlMessage message;
  *message.mutable_gathered() = std::move((*answer)->gathered);
  return ToAll(std::move(message), [&](const Participant& other) {
    return other.process.role() == role &&
           std::binary_search(ranks.begin(), ranks.end(), other.process.rank());
  });
}

std::vector<Membership::Outgoing> Membership::OnAnnounce(
    const Participant& sender, const proto::Announce& announce) {
  // Who has left is the coordinator's to say.
  if (state_ != State::kRunning || announce.name() == kWorkerLeft) return {};
  // The first of a role speaks for it, but for what anybody may tell workers.
  const bool speaks =
      sender.process.rank() == 0 && sender.process.role() != announce.to();
  const bool is_late = absl::StartsWith(announce.name(), kLateCollective);
  const bool anybodys = announce.to() == proto::WORKER &&
                        (announce.name() == kStopWish || is_late) &&
                        announce.name().size() <= kMostOfName &&
                        announce.payload().size() <= kMostOfNumber;
  if (!speaks && !anybodys) return {};
  // All ranks may find it late at the same time.
  const std::string word =
      absl::StrCat(announce.name(), " ", announce.payload());
  if (is_late && std::exchange(last_late_, word) == word) return {};
  ControlMessage message;
  *message.mutable_announce() = announce;
  return ToAll(std::move(message), [&](const Participant& member) {
    return member.process.role() == announce.to();
  });
}

std::vector<Membership::Outgoing> Membership::OnLeave(
    Time now, Participant& member, const proto::Leave& leave) {
  const std::string error = Printable(leave.error());
  member.left = true;
  member.step = std::max(member.step, leave.step());
  if (leave.has_figures()) member.figures = CleanFigures(leave.figures());
  const std::string who = Named(member);
  if (leave.timed_out()) {
    if (const Participant* hung = MostStill(members_, now, kSuspicious)) {
      return End(
          absl::AbortedError(absl::StrCat(DescribeHang(*hung, now), ", while ",
                                          who, " waited: ", error)),
          /*hang=*/true);
    }
  }
  if (!error.empty()) {
    const std::string when = state_ == State::kForming
                                 ? " before the job was complete"
                                 : AtStep(member.step);
    const bool of_silence = absl::StrContains(error, "the coordinator");
    return End(
        absl::AbortedError(absl::StrCat(who, " failed", when, ": ", error,
                                        of_silence ? DescribeStop(now) : "")));
  }
  if (state_ == State::kForming || member.process.role() == proto::PS) {
    return End(absl::AbortedError(
        absl::StrCat(who, " left before the job had ended")));
  }
  left_untold_.push_back(member.process.rank());
  const bool workers_stay =
      std::any_of(members_.begin(), members_.end(), [](const auto& other) {
        return !other.second.left &&
               other.second.process.role() == proto::WORKER;
      });
  return workers_stay ? std::vector<Outgoing>() : End(absl::OkStatus());
}

std::vector<Membership::Outgoing> Membership::TellWhoLeft() {
  if (left_untold_.empty()) return {};
  ControlMessage message;
  message.mutable_announce()->set_name(kWorkerLeft);
  message.mutable_announce()->set_payload(
      absl::StrJoin(std::exchange(left_untold_, {}), ","));
  return ToAll(std::move(message),
               [](const Participant& member) { return !member.left; });
}

std::vector<Membership::Outgoing> Membership::OnTick(Time now) {
  if (state_ == State::kOver) return {};
  latest_ = now;
  for (const auto& [peer, member] : members_) {
    const absl::Duration silent = now - member.last_heard;
    if (member.left || silent <= options_.heartbeat_timeout) continue;
    return End(absl::UnavailableError(
        absl::StrCat("lost ", Named(member), AtStep(member.step),
                     ": last heard from ", DescribeSeconds(silent), " ago",
                     ExplainSilence(members_, member, now))));
  }
  for (const auto& [peer, member] : members_) {
    const bool judged = member.progress_timeout > absl::ZeroDuration() &&
                        !member.left && !member.doing.empty();
    if (!judged || now - member.progress <= member.progress_timeout) continue;
    return End(
        absl::DeadlineExceededError(absl::StrCat(
            DescribeHang(member, now),
            ". If it may take so long, allow more (--progress-timeout, or "
            "progress_timeout_s of a script)")),
        /*hang=*/true);
  }
  if (state_ == State::kForming && now - first_join_ > options_.join_timeout) {
    return End(absl::DeadlineExceededError(absl::StrCat(
        "the job is not complete after ",
        DescribeSeconds(options_.join_timeout), ": ", Missing(),
        last_refused_.empty()
            ? ". Start the missing ones, start the job with fewer "
              "(--servers, --workers; of psring run -n, --size), "
              "or, where they "
              "need more time to start, allow it (--join-timeout, "
              "PSRING_JOIN_TIMEOUT_S)"
            : absl::StrCat("; ", last_refused_),
        refused_key_.empty()
            ? ""
            : absl::StrCat(". Connections were refused, the last one of a "
                           "process ",
                           refused_key_))));
  }
  const bool held_up =
      std::any_of(members_.begin(), members_.end(),
                  [](const auto& m) { return m.second.WaitsLong(); });
  culprit_ = held_up ? std::optional(FindCulprit(members_, now)) : std::nullopt;
  return TellWhoLeft();
}

std::vector<Membership::Outgoing> Membership::OnCoordinatorGone(
    const std::string& reason) {
  if (!reason.empty()) return End(absl::AbortedError(reason));
  for (const auto& [peer, member] : members_) {
    if (!member.process.hosts_coordinator()) continue;
    return End(absl::AbortedError(absl::StrCat(
        Describe(member.process), ", which hosts the coordinator, has ended",
        AtStep(member.step))));
  }
  return End(absl::AbortedError("the coordinator's process has ended"));
}

std::vector<Membership::Outgoing> Membership::End(absl::Status result,
                                                  bool hang) {
  if (state_ == State::kOver) return {};
  state_ = State::kOver;
  result_ = std::move(result);
  ControlMessage message;
  message.mutable_job_end()->set_error(std::string(result_.message()));
  message.mutable_job_end()->set_hang(hang);
  num_told_ = static_cast<int>(members_.size());
  return ToAll(std::move(message), [](const Participant&) { return true; });
}

}  // namespace psring
