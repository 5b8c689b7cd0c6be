#include "common/cluster/membership.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/net/address.h"

namespace psring {
namespace {

using proto::ControlMessage;

const char* NameOf(proto::Role role) {
  return role == proto::PS ? "ps" : "worker";
}

const char* NameOf(proto::Mode mode) {
  return mode == proto::RING ? "ring" : "ps";
}

std::string Seconds(absl::Duration d) {
  return absl::StrCat(
      static_cast<int64_t>(absl::ToDoubleSeconds(d) * 10) / 10.0, " s");
}

}  // namespace

std::string Describe(const proto::Process& process) {
  const std::string rank =
      process.rank() < 0 ? "" : absl::StrCat(" ", process.rank());
  return absl::StrCat(NameOf(process.role()), rank, " (host ", process.host(),
                      ", pid ", process.pid(), ")");
}

int Membership::Promised(proto::Role role) const {
  return role == proto::PS ? options_.num_servers : options_.num_workers;
}

int Membership::Joined(proto::Role role) const {
  return static_cast<int>(std::count_if(
      members_.begin(), members_.end(),
      [role](const auto& m) { return m.second.process.role() == role; }));
}

std::vector<Membership::Outgoing> Membership::OnMessage(
    Time now, const std::string& peer, const ControlMessage& message) {
  if (message.has_join()) return OnJoin(now, peer, message.join());
  const auto found = members_.find(peer);
  if (found == members_.end()) return {};  // never joined: nothing to say
  Participant& member = found->second;
  member.last_heard = now;
  switch (message.kind_case()) {
    case ControlMessage::kHeartbeat: {
      member.step = std::max(member.step, message.heartbeat().step());
      ControlMessage ack;
      ack.mutable_heartbeat_ack()->set_sent_ns(message.heartbeat().sent_ns());
      ack.mutable_heartbeat_ack()->set_heard_ns(now.nanos());
      return {{peer, ack}};
    }
    case ControlMessage::kGather:
      return OnGather(peer, member, message.gather());
    case ControlMessage::kAnnounce:
      return OnAnnounce(message.announce());
    case ControlMessage::kLeave:
      return OnLeave(member, message.leave());
    default:
      return {};
  }
}

std::vector<Membership::Outgoing> Membership::OnJoin(Time now,
                                                     const std::string& peer,
                                                     const proto::Join& join) {
  if (members_.contains(peer)) return {};
  if (const auto objection = Objection(join)) {
    if (over()) ++num_told_;
    ControlMessage refusal;
    refusal.mutable_refuse()->set_reason(*objection);
    return {{peer, refusal}};
  }
  Participant member;
  member.process.set_role(join.role());
  member.process.set_rank(-1);
  member.process.set_host(join.host());
  member.process.set_pid(join.pid());
  member.process.set_address(join.address());
  member.process.set_hosts_coordinator(join.hosts_coordinator());
  member.wanted_rank = join.wanted_rank();
  member.last_heard = now;
  members_[peer] = member;
  join_order_.push_back(peer);
  if (!join.failure().empty()) {
    member.process.set_rank(join.wanted_rank());
    return End(absl::AbortedError(
        absl::StrCat(Describe(member.process),
                     " failed before it joined: ", join.failure())));
  }
  const bool complete = Joined(proto::PS) == options_.num_servers &&
                        Joined(proto::WORKER) == options_.num_workers;
  return complete ? WelcomeAll() : std::vector<Outgoing>();
}

std::optional<std::string> Membership::Objection(
    const proto::Join& join) const {
  if (join.protocol_version() != kProtocolVersion) {
    return absl::StrCat("protocol version: ", join.protocol_version(),
                        " here, ", kProtocolVersion,
                        " in the job. Run the same build of psring everywhere");
  }
  if (state_ == State::kOver) {
    return absl::StrCat("the job is over: ",
                        result_.ok() ? "it has finished" : result_.message());
  }
  if (join.role() != proto::PS && join.role() != proto::WORKER) {
    return absl::StrCat("role ", join.role(), " is unknown");
  }
  for (const auto& objection :
       {SizeObjection(join), AddressObjection(join), RankObjection(join)}) {
    if (objection) return objection;
  }
  return std::nullopt;
}

std::optional<std::string> Membership::SizeObjection(
    const proto::Join& join) const {
  if (join.mode() != options_.mode) {
    return absl::StrCat("mode: ", NameOf(join.mode()), " here, ",
                        NameOf(options_.mode), " in the job");
  }
  if (join.num_servers() > 0 && join.num_servers() != options_.num_servers) {
    return absl::StrCat("servers: ", join.num_servers(), " here, ",
                        options_.num_servers, " in the job");
  }
  if (join.num_workers() > 0 && join.num_workers() != options_.num_workers) {
    return absl::StrCat("workers: ", join.num_workers(), " here, ",
                        options_.num_workers, " in the job");
  }
  return std::nullopt;
}

std::optional<std::string> Membership::RankObjection(
    const proto::Join& join) const {
  const char* role = NameOf(join.role());
  const int promised = Promised(join.role());
  if (Joined(join.role()) >= promised) {
    return absl::StrCat("the job takes ", promised, " ", role,
                        " processes, and all of them have joined");
  }
  if (join.wanted_rank() >= promised) {
    return absl::StrCat("rank ", join.wanted_rank(), ": the job takes ",
                        promised, " ", role, " processes, ranks 0 to ",
                        promised - 1);
  }
  for (const auto& [peer, member] : members_) {
    if (join.wanted_rank() >= 0 && member.process.role() == join.role() &&
        member.wanted_rank == join.wanted_rank()) {
      return absl::StrCat("rank ", join.wanted_rank(), " is taken by ",
                          Describe(member.process));
    }
  }
  return std::nullopt;
}

// A process that others cannot reach would hang them all.
std::optional<std::string> Membership::AddressObjection(
    const proto::Join& join) const {
  const bool loopback = IsLoopback(join.address());
  for (const auto& [peer, member] : members_) {
    if (IsLoopback(member.process.address()) == loopback) continue;
    const std::string remedy =
        ". Give it an address that other hosts reach (advertise or "
        "interface), and a coordinator that is not loopback";
    return absl::StrCat(loopback ? "this process" : Describe(member.process),
                        " has a loopback address, but ",
                        loopback ? Describe(member.process) : "this process",
                        " has one that other hosts reach", remedy);
  }
  return std::nullopt;
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
  proto::Welcome welcome;
  welcome.set_job_epoch(options_.job_epoch);
  for (int i = 0; i < options_.num_servers; ++i) welcome.add_servers();
  for (int i = 0; i < options_.num_workers; ++i) welcome.add_workers();
  for (const auto& [peer, member] : members_) {
    auto* list = member.process.role() == proto::PS ? welcome.mutable_servers()
                                                    : welcome.mutable_workers();
    *list->Mutable(member.process.rank()) = member.process;
  }
  std::vector<Outgoing> out;
  for (const auto& [peer, member] : members_) {
    welcome.set_rank(member.process.rank());
    ControlMessage message;
    *message.mutable_welcome() = welcome;
    out.push_back({peer, std::move(message)});
  }
  return out;
}

std::vector<Membership::Outgoing> Membership::OnGather(
    const std::string& peer, const Participant& member,
    const proto::Gather& gather) {
  if (state_ != State::kRunning) return {};
  const proto::Role role = member.process.role();
  const auto key = std::make_pair(static_cast<int>(role), gather.name());
  // A repeat finds no entry where the gather is complete: its answer is on the
  // way.
  if (gather.repeat() && !gathers_.contains(key)) return {};
  Contributions& contributions = gathers_[key];
  if (!gather.repeat()) {
    contributions.emplace(member.process.rank(), gather.payload());
  }
  ControlMessage message;
  message.mutable_gathered()->set_name(gather.name());
  if (static_cast<int>(contributions.size()) < Promised(role)) {
    if (!gather.repeat()) return {};
    for (int r = 0; r < Promised(role); ++r) {
      if (contributions.contains(r)) continue;
      message.mutable_gathered()->add_missing(r);
    }
    return {{peer, std::move(message)}};
  }
  for (const auto& [rank, payload] : contributions) {
    message.mutable_gathered()->add_payloads(payload);
  }
  gathers_.erase(key);
  std::vector<Outgoing> out;
  for (const auto& [peer, other] : members_) {
    if (other.process.role() == role) out.push_back({peer, message});
  }
  return out;
}

std::vector<Membership::Outgoing> Membership::OnAnnounce(
    const proto::Announce& announce) const {
  // Who has left is the coordinator's to say.
  if (state_ != State::kRunning || announce.name() == kWorkerLeft) return {};
  ControlMessage message;
  *message.mutable_announce() = announce;
  std::vector<Outgoing> out;
  for (const auto& [peer, member] : members_) {
    if (member.process.role() == announce.to()) out.push_back({peer, message});
  }
  return out;
}

std::vector<Membership::Outgoing> Membership::OnLeave(
    Participant& member, const proto::Leave& leave) {
  member.left = true;
  const std::string who = Describe(member.process);
  if (!leave.error().empty()) {
    return End(absl::AbortedError(absl::StrCat(
        who, " failed at step ", member.step, ": ", leave.error())));
  }
  if (state_ == State::kForming || member.process.role() == proto::PS) {
    return End(absl::AbortedError(
        absl::StrCat(who, " left before the job had ended")));
  }
  std::vector<Outgoing> out;
  bool workers_stay = false;
  for (const auto& [peer, other] : members_) {
    if (other.left) continue;
    workers_stay = workers_stay || other.process.role() == proto::WORKER;
    ControlMessage message;
    message.mutable_announce()->set_to(other.process.role());
    message.mutable_announce()->set_name(kWorkerLeft);
    message.mutable_announce()->set_payload(
        absl::StrCat(member.process.rank()));
    out.push_back({peer, std::move(message)});
  }
  return workers_stay ? out : End(absl::OkStatus());
}

// ", namely ranks 1, 3" where every process that has joined said its rank.
std::string Membership::MissingRanks(proto::Role role) const {
  std::set<int> missing;
  for (int rank = 0; rank < Promised(role); ++rank) missing.insert(rank);
  for (const auto& [peer, member] : members_) {
    if (member.process.role() != role) continue;
    if (member.wanted_rank < 0) return "";
    missing.erase(member.wanted_rank);
  }
  return absl::StrCat(", namely ", missing.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(missing, ", "));
}

std::string Membership::Missing() const {
  std::vector<std::string> parts;
  for (proto::Role role : {proto::PS, proto::WORKER}) {
    const int missing = Promised(role) - Joined(role);
    if (missing == 0) continue;
    parts.push_back(absl::StrCat(missing, " of ", Promised(role), " ",
                                 NameOf(role), " processes",
                                 MissingRanks(role)));
  }
  std::vector<std::string> joined;
  for (const std::string& peer : join_order_) {
    const Participant& member = members_.at(peer);
    proto::Process process = member.process;
    process.set_rank(member.wanted_rank);
    joined.push_back(Describe(process));
  }
  return absl::StrCat("missing ", absl::StrJoin(parts, " and "), "; joined: ",
                      joined.empty() ? "nobody" : absl::StrJoin(joined, ", "));
}

void Membership::ForgivePause(Time now) {
  const absl::Duration pause = pauses_.Look(now);
  if (pause == absl::ZeroDuration()) return;
  started_ += pause;
  for (auto& [peer, member] : members_) {
    member.last_heard = std::min(now, member.last_heard + pause);
  }
}

std::vector<Membership::Outgoing> Membership::OnTick(Time now) {
  if (state_ == State::kOver) return {};
  ForgivePause(now);
  for (const auto& [peer, member] : members_) {
    const absl::Duration silent = now - member.last_heard;
    if (member.left || silent <= options_.dead_after) continue;
    return End(absl::UnavailableError(absl::StrCat(
        "lost ", Describe(member.process), " at step ", member.step,
        ": last heard from ", Seconds(silent), " ago")));
  }
  if (state_ == State::kForming && now - started_ > options_.join_timeout) {
    return End(absl::DeadlineExceededError(absl::StrCat(
        "the job is not complete after ", Seconds(options_.join_timeout), ": ",
        Missing(),
        ". Start the missing ones, or promise fewer servers or workers")));
  }
  return {};
}

std::vector<Membership::Outgoing> Membership::OnCoordinatorGone() {
  for (const auto& [peer, member] : members_) {
    if (!member.process.hosts_coordinator()) continue;
    return End(absl::AbortedError(absl::StrCat(
        Describe(member.process), ", which hosts the coordinator, has ended",
        " at step ", member.step)));
  }
  return End(absl::AbortedError("the coordinator's process has ended"));
}

std::vector<Membership::Outgoing> Membership::End(absl::Status result) {
  if (state_ == State::kOver) return {};
  state_ = State::kOver;
  result_ = std::move(result);
  ControlMessage message;
  message.mutable_job_end()->set_error(std::string(result_.message()));
  std::vector<Outgoing> out;
  for (const auto& [peer, member] : members_) out.push_back({peer, message});
  num_told_ = static_cast<int>(out.size());
  return out;
}

}  // namespace psring
