// What a Membership says of its job: to whoever looks at it, and in errors.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/cluster/figures.h"
#include "common/cluster/membership.h"
#include "common/cluster/process_names.h"
#include "common/counted.h"

namespace psring {

std::string Membership::HeldUpBy(Time now, const Participant& member) const {
  if (state_ != State::kRunning || !member.WaitsLong()) return "";
  const Participant* culprit = culprit_.value_or(nullptr);
  if (culprit == nullptr || culprit == &member) {
    for (const auto& [peer, other] : members_) {
      if (member.left || !other.left) continue;
      return absl::StrCat(Describe(other.process),
                          ", which has ended without an error while others "
                          "still train");
    }
    // Between its heartbeats it works.
    const Participant* behind = FewestSteps(members_);
    if (behind != nullptr && behind->step < member.step) {
      return absl::StrCat(Describe(behind->process), ", which is at step ",
                          behind->step, ", this one at step ", member.step);
    }
    const proto::Role role = member.process.role();
    const auto missing = gathers_.FirstMissing(member.process, Promised(role));
    const Participant* late =
        missing ? WithRank(members_, role, missing->rank) : nullptr;
    if (late != nullptr) {
      return absl::StrCat(Describe(late->process), ", which has not come to '",
                          CleanWord(missing->name), "'; nobody works");
    }
    return "others, none of whom works: all wait for each other, or for the "
           "network";
  }
  return DescribeCulprit(*culprit, now);
}

proto::JobView Membership::View(Time now) const {
  // Who has ended with the job is not silent.
  if (over()) now = latest_;
  proto::JobView view;
  view.set_state(state_ == State::kForming   ? proto::JobView::FORMING
                 : state_ == State::kRunning ? proto::JobView::RUNNING
                                             : proto::JobView::OVER);
  view.set_result(CleanWord(result_.message()));
  view.set_mode(options_.mode);
  view.set_num_servers(options_.num_servers);
  view.set_num_workers(options_.num_workers);
  view.set_job_epoch(options_.job_epoch);
  std::vector<const Participant*> members;
  for (const auto& [peer, member] : members_) members.push_back(&member);
  std::stable_sort(members.begin(), members.end(),
                   [](const auto* a, const auto* b) {
                     return std::pair(a->process.role(), a->process.rank()) <
                            std::pair(b->process.role(), b->process.rank());
                   });
  for (const Participant* member : members) {
    proto::ProcessView& shown = *view.add_processes();
    shown = ViewOf(*member, now);
    // Servers go with the last worker, and say nothing of it.
    if (state_ == State::kOver && result_.ok()) shown.set_left(true);
    shown.set_held_up_by(HeldUpBy(now, *member));
  }
  return view;
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
  return absl::StrCat(
      ", namely ", missing.size() == 1 ? "rank " : "ranks ",
      ShortList(std::vector<int>(missing.begin(), missing.end())));
}

std::string Membership::Named(const Participant& member) const {
  proto::Process process = member.process;
  if (state_ == State::kForming) process.set_rank(member.wanted_rank);
  return Describe(process);
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
    joined.push_back(Named(members_.at(peer)));
  }
  return absl::StrCat("missing ", absl::StrJoin(parts, " and "), "; joined: ",
                      joined.empty() ? "nobody" : ShortList(joined));
}

}  // namespace psring
