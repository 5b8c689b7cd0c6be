#include "common/cluster/participants.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/cluster/host_of.h"
#include "common/cluster/process_names.h"

namespace psring {
namespace {

// How long after a stop of this process others may be found to have given it
// up.
constexpr absl::Duration kAfterStop = absl::Seconds(10);

// Of all its host, or of all hosts but the coordinator's.
std::string DescribeSilentHosts(const Participants& participants,
                                const Participant& lost, Time now) {
  struct Host {
    int processes = 0;
    int silent = 0;
  };
  std::map<HostId, Host> hosts;
  const Participant* coordinator = nullptr;
  for (const auto& [peer, participant] : participants) {
    if (participant.process.hosts_coordinator()) coordinator = &participant;
    if (participant.left) continue;
    Host& host = hosts[HostOf(participant.process)];
    ++host.processes;
    if (now - participant.last_heard > kSilentAfter) ++host.silent;
  }
  if (coordinator == nullptr) return "";
  hosts.erase(HostOf(coordinator->process));
  const auto is_silent = [](const Host& host) {
    return host.silent == host.processes;
  };
  if (hosts.size() > 1 &&
      std::all_of(hosts.begin(), hosts.end(),
                  [&](const auto& host) { return is_silent(host.second); })) {
    return absl::StrCat(
        ". All other hosts are silent, too: is the network of host ",
        coordinator->process.host(), ", which has the coordinator, down?");
  }
  const auto found = hosts.find(HostOf(lost.process));
  if (found == hosts.end() || !is_silent(found->second)) return "";
  const int others = found->second.processes - 1;
  if (others == 0) return "";
  return absl::StrCat(others == 1 ? ". The other process of its host is"
                                  : absl::StrCat(". The other ", others,
                                                 " processes of its host are"),
                      " silent, too: is the host, or its network, down? If it "
                      "comes back, wait longer for it (--heartbeat-timeout)");
}

}  // namespace

const Participant* MostStill(const Participants& participants, Time now,
                             absl::Duration least) {
  const Participant* most = nullptr;
  for (const auto& [peer, participant] : participants) {
    if (participant.left || participant.doing.empty()) continue;
    if (now - participant.progress < least) continue;
    if (most == nullptr || participant.progress < most->progress)
      most = &participant;
  }
  return most;
}

const Participant* FewestSteps(const Participants& participants) {
  const Participant* fewest = nullptr;
  for (const auto& [peer, participant] : participants) {
    if (participant.left || participant.process.role() != proto::WORKER) {
      continue;
    }
    if (fewest == nullptr || participant.step < fewest->step) {
      fewest = &participant;
    }
  }
  return fewest;
}

const Participant* WithRank(const Participants& participants, proto::Role role,
                            int rank) {
  for (const auto& [peer, participant] : participants) {
    const proto::Process& process = participant.process;
    if (process.role() == role && process.rank() == rank) return &participant;
  }
  return nullptr;
}

const Participant* FindCulprit(const Participants& participants, Time now) {
  const Participant* last = nullptr;    // the fewest steps
  const Participant* silent = nullptr;  // for longest
  for (const auto& [peer, participant] : participants) {
    if (participant.left) continue;
    if (now - participant.last_heard > kSilentAfter &&
        (silent == nullptr || participant.last_heard < silent->last_heard)) {
      silent = &participant;
    }
    if (participant.doing.empty()) continue;
    if (last == nullptr || participant.step < last->step ||
        (participant.step == last->step &&
         participant.progress < last->progress)) {
      last = &participant;
    }
  }
  if (silent != nullptr) return silent;
  const Participant* still = MostStill(participants, now, kSuspicious);
  return still != nullptr ? still : last;
}

std::string DescribeHang(const Participant& participant, Time now) {
  return absl::StrCat(Describe(participant.process), " hangs: at step ",
                      participant.step, " it has been ", participant.doing,
                      " for ", DescribeSeconds(now - participant.progress),
                      " without progress");
}

std::string DescribeCulprit(const Participant& culprit, Time now) {
  const std::string who = Describe(culprit.process);
  if (now - culprit.last_heard > kSilentAfter) {
    return absl::StrCat(who, ", last heard from ",
                        DescribeSeconds(now - culprit.last_heard), " ago");
  }
  if (culprit.doing.empty()) return who;
  return absl::StrCat(
      who, ", which is ", culprit.doing, " at step ", culprit.step, ", for ",
      DescribeSeconds(now - culprit.progress), " without progress");
}

std::string DescribeStop(Time now) {
  const absl::Duration since = now - LastStop();
  const bool recent = TimeStopped() > absl::ZeroDuration() &&
                      since >= absl::ZeroDuration() && since < kAfterStop;
  return recent ? ". The coordinator's process was stopped shortly before: "
                  "others may have given it up"
                : "";
}

std::string ExplainSilence(const Participants& participants,
                           const Participant& lost, Time now) {
  std::string stop = DescribeStop(now);
  return stop.empty() ? DescribeSilentHosts(participants, lost, now) : stop;
}

proto::ProcessView ViewOf(const Participant& participant, Time now) {
  proto::ProcessView view;
  proto::Process& process = *view.mutable_process();
  process.set_role(participant.process.role());
  process.set_rank(participant.process.rank());
  process.set_host(participant.process.host());
  process.set_pid(participant.process.pid());
  view.set_step(participant.step);
  view.set_doing(participant.doing);
  view.set_still_ms(absl::ToInt64Milliseconds(now - participant.progress));
  view.set_silent_ms(std::max<int64_t>(
      absl::ToInt64Milliseconds(now - participant.last_heard), 0));
  view.set_left(participant.left);
  view.set_waits_at(participant.waits_at);
  view.set_waiting_ms(absl::ToInt64Milliseconds(participant.waiting));
  *view.mutable_figures() = participant.figures;
  return view;
}

}  // namespace psring
