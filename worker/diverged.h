// The error of a training whose numbers are none any more.
#ifndef PSRING_WORKER_DIVERGED_H_
#define PSRING_WORKER_DIVERGED_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace psring {

// OUT_OF_RANGE. `what`: "loss of step 5".
inline absl::Status Diverged(absl::string_view what, double value) {
  return absl::OutOfRangeError(absl::StrCat(
      "the ", what, " is ", value,
      ": training has diverged. A smaller --lr or --warmup-epochs may help"));
}

}  // namespace psring

#endif  // PSRING_WORKER_DIVERGED_H_
