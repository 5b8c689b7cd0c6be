#include "common/cluster/clock_offset.h"

#include "common/clock.h"

namespace psring {

ClockOffset OffsetOf(Time sent, Time heard, Time replied, Time answered) {
  return {((heard - sent) + (replied - answered)) / 2,
          (answered - sent) - (replied - heard)};
}

ClockOffset Better(const std::optional<ClockOffset>& known,
                   const ClockOffset& found) {
  return known.has_value() && known->round_trip <= found.round_trip ? *known
                                                                    : found;
}

}  // namespace psring
