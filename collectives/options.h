// How collectives behave; see collectives.h.
#ifndef PSRING_COLLECTIVES_OPTIONS_H_
#define PSRING_COLLECTIVES_OPTIONS_H_

#include <functional>
#include <vector>

#include "absl/time/time.h"

namespace psring {

struct CollectivesOptions {
  // From its call on, an operation has so long until it fails.
  absl::Duration step_timeout = absl::Seconds(60);
  // The ranks that have left the job for good, asked now and then on the
  // collectives' thread: what still needs their call fails. May be empty.
  std::function<std::vector<int>()> ranks_left = nullptr;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_OPTIONS_H_
