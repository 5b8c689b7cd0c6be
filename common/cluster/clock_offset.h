// How far another process's clock is ahead of this one's, as NTP finds out
// (Mills, RFC 5905): from a question and its answer, each sent and received at
// a time of its own sender's and receiver's. The shortest round trip knows
// best, as what the offset can be wrong by is half of it, and more with every
// second since, as clocks run apart. Pure.
#ifndef PSRING_COMMON_CLUSTER_CLOCK_OFFSET_H_
#define PSRING_COMMON_CLUSTER_CLOCK_OFFSET_H_

#include <optional>

#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

// What two clocks may run apart by, a second's share (RFC 5905's PHI).
inline constexpr double kClocksApart = 15e-6;

struct ClockOffset {
  absl::Duration ahead;       // of this process's clock
  absl::Duration round_trip;  // without the time until the answer was sent
  Time at = Time();           // by this process's clock

  friend bool operator==(const ClockOffset& a, const ClockOffset& b) = default;
};

// Of one question: sent and answered by this process's clock, heard and
// replied by the other's.
ClockOffset OffsetOf(Time sent, Time heard, Time replied, Time answered);

// The one that is less wrong when `found` is new.
ClockOffset Better(const std::optional<ClockOffset>& known,
                   const ClockOffset& found);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_CLOCK_OFFSET_H_
