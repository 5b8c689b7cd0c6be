// Finds ranks that wait for each other's calls: pure decisions.
//
// A rank that has been waiting for an operation asks the ranks that have not
// called it what they wait for. One that has itself been waiting for an
// operation that the asking rank has not called will not come: neither will. So
// has one that waits in a model's step for the asking rank's gradients.
// That is said when two answers in a row agree, as what another thread calls in
// between is on its way. What counts as waiting: the main thread's, and of
// calls with the same order any thread's, as their order says which comes first
// (Collectives::SetOrder).
#ifndef PSRING_COLLECTIVES_STALL_CHECK_H_
#define PSRING_COLLECTIVES_STALL_CHECK_H_

#include <map>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "collectives/call.h"
#include "common/clock.h"

namespace psring {

// A caller has to wait so long before its rank asks others, and before it says
// to others that it waits.
inline constexpr absl::Duration kAskAfter = absl::Seconds(2);
inline constexpr absl::Duration kSayAfter = absl::Seconds(1);
inline constexpr absl::Duration kAskEvery = absl::Milliseconds(500);

class StallCheck {
 public:
  // Whether to ask `rank` about `mine` now, which is noted.
  bool Ask(const CallKey& mine, int rank, Time now);

  // `rank` has not called `mine`, and waits for `theirs`, which this rank has
  // not called; nothing: it waits for no such thing. Whether that is certain.
  bool OnAnswer(const CallKey& mine, int rank,
                const std::optional<CallKey>& theirs);

  // `mine` has ended.
  void Forget(const CallKey& mine);

 private:
  struct Question {
    Time asked = Time::InfinitePast();
    std::optional<CallKey> theirs;  // of the last answer
  };

  std::map<std::pair<CallKey, int>, Question> questions_;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_STALL_CHECK_H_
