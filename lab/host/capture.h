// Runs a short program for its output.
#ifndef PSRING_LAB_HOST_CAPTURE_H_
#define PSRING_LAB_HOST_CAPTURE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace psring {

// The lines of its output. An error when it cannot be started, fails, or takes
// longer than `timeout`.
absl::StatusOr<std::vector<std::string>> Capture(
    std::vector<std::string> argv, absl::Duration timeout = absl::Seconds(30));

}  // namespace psring

#endif  // PSRING_LAB_HOST_CAPTURE_H_
