#include "collectives/stall_check.h"

#include "common/clock.h"

namespace psring {

bool StallCheck::Ask(const CallKey& mine, int rank, Time now) {
  Question& question = questions_[{mine, rank}];
  if (now - question.asked < kAskEvery) return false;
  question.asked = now;
  return true;
}

bool StallCheck::OnAnswer(const CallKey& mine, int rank,
                          const std::optional<CallKey>& theirs) {
  const auto found = questions_.find({mine, rank});
  if (found == questions_.end()) return false;
  Question& question = found->second;
  const bool certain = theirs.has_value() && question.theirs == theirs;
  question.theirs = theirs;
  return certain;
}

void StallCheck::Forget(const CallKey& mine) {
  auto at = questions_.lower_bound({mine, 0});
  while (at != questions_.end() && at->first.first == mine) {
    at = questions_.erase(at);
  }
}

}  // namespace psring
