// A deadline that progress puts off.
#ifndef PSRING_COMMON_MOVING_DEADLINE_H_
#define PSRING_COMMON_MOVING_DEADLINE_H_

#include <algorithm>

#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

// Ends a wait in which nothing has moved for as long as there was until the
// first deadline: what takes long, but goes on, is no failure.
class MovingDeadline {
 public:
  // Implicit: whoever waits in one piece gives a Time.
  MovingDeadline(Time first)  // NOLINT(google-explicit-constructor)
      : patience_(first - Now()), at_(first) {}

  Time at() const { return at_; }
  bool has_passed() const { return Now() > at_; }

  // Something has moved. Returns the new deadline, which is never earlier.
  Time PutOff() { return at_ = std::max(at_, Now() + patience_); }

 private:
  absl::Duration patience_;
  Time at_;
};

}  // namespace psring

#endif  // PSRING_COMMON_MOVING_DEADLINE_H_
