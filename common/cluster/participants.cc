#include "common/cluster/participants.h"

#include "absl/strings/str_cat.h"
#include "common/cluster/process_names.h"

namespace psring {

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
  view.set_silent_ms(absl::ToInt64Milliseconds(now - participant.last_heard));
  view.set_left(participant.left);
  view.set_waits_at(participant.waits_at);
  view.set_waiting_ms(absl::ToInt64Milliseconds(participant.waiting));
  *view.mutable_figures() = participant.figures;
  return view;
}

}  // namespace psring
