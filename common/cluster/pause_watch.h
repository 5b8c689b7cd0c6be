// Notices that this process did not run for a while: it was stopped (SIGSTOP),
// or its machine was. Meanwhile it could hear nobody, so others' silence is no
// news, and what they have sent may not have come through the sockets yet.
// Pure.
#ifndef PSRING_COMMON_CLUSTER_PAUSE_WATCH_H_
#define PSRING_COMMON_CLUSTER_PAUSE_WATCH_H_

#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

class PauseWatch {
 public:
  explicit PauseWatch(Time now) : last_look_(now) {}

  // Called at least every second by a process that runs. The time for which it
  // did not, or 0.
  absl::Duration Look(Time now) {
    const absl::Duration gap = now - std::exchange(last_look_, now);
    return gap > kPause ? gap : absl::ZeroDuration();
  }

 private:
  static constexpr absl::Duration kPause = absl::Seconds(2);

  Time last_look_;
};

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_PAUSE_WATCH_H_
