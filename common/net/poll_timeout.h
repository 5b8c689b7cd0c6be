// How long poll() may wait.
#ifndef PSRING_COMMON_NET_POLL_TIMEOUT_H_
#define PSRING_COMMON_NET_POLL_TIMEOUT_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

// Milliseconds until `deadline`, rounded up, so that a wait never ends just
// before it; from 0 to a day, after which the caller looks again.
inline int PollTimeoutMs(Time deadline) {
  const absl::Duration left = deadline - Now() + absl::Milliseconds(1);
  constexpr int64_t kDay = 24 * 3600 * 1000;
  return static_cast<int>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(left), 0, kDay));
}

}  // namespace psring

#endif  // PSRING_COMMON_NET_POLL_TIMEOUT_H_
