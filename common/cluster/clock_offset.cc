#include "common/cluster/clock_offset.h"

#include "common/clock.h"

namespace psring {
namespace {

constexpr double kApart = 15e-6;  // RFC 5905's PHI

}  // namespace

ClockOffset OffsetOf(Time sent, Time heard, Time replied, Time answered) {
  return {((heard - sent) + (replied - answered)) / 2,
          (answered - sent) - (replied - heard), answered};
}

ClockOffset Better(const std::optional<ClockOffset>& known,
                   const ClockOffset& found) {
  if (!known.has_value()) return found;
  const absl::Duration age = found.at - known->at;
  return known->round_trip + 2 * kApart * age <= found.round_trip ? *known
                                                                  : found;
}

}  // namespace psring
