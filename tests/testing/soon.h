// The one deadline of what a test awaits.
#ifndef PSRING_TESTS_TESTING_SOON_H_
#define PSRING_TESTS_TESTING_SOON_H_

#include <algorithm>
#include <cstdlib>

#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

// Far longer than anything takes, even where many tests share the machine, and
// at most half of what Bazel gives the test: a wait that fails says so before
// the test is killed.
inline Time Soon() {
  absl::Duration patience = absl::Minutes(2);
  if (const char* limit = std::getenv("TEST_TIMEOUT"); limit != nullptr) {
    patience = std::min(patience, absl::Seconds(std::atoi(limit)) / 2);
  }
  return Now() + patience;
}

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_SOON_H_
