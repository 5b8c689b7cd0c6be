#include "common/cluster/clock_offset.h"

#include "common/clock.h"

namespace psring {

ClockOffset OffsetOf(Time sent, Time heard, Time replied, Time answered) {
  return {((heard - sent) + (replied - answered)) / 2,
          (answered - sent) - (replied - heard), answered};
}

ClockOffset Better(const std::optional<ClockOffset>& known,
                   const ClockOffset& found) {
  if (!known.has_value()) return found;
  const absl::Duration age = found.at - known->at;
  return known->round_trip + 2 * kClocksApart * age <= found.round_trip ? *known
                                                                        : found;
}

}  // namespace psring
