// How fast this host sums gradients and applies them.
#ifndef PSRING_LAB_PREDICT_UPDATE_RATE_H_
#define PSRING_LAB_PREDICT_UPDATE_RATE_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace psring {

// Bytes of gradients a second, of one thread with plain SGD on the gradients of
// two workers. Takes `budget`.
absl::StatusOr<double> MeasureUpdateRate(
    absl::Duration budget = absl::Milliseconds(200));

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_UPDATE_RATE_H_
