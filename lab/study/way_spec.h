// The ways of training that `psring compare` knows: a topology with, of
// servers, the policy of consistency.
#ifndef PSRING_LAB_STUDY_WAY_SPEC_H_
#define PSRING_LAB_STUDY_WAY_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

struct WaySpec {
  std::string name;                       // as the user wrote it: "ps-ssp:3"
  std::string mode;                       // "ps" or "ring"
  std::string sync;                       // of "ps": "bsp", "ssp" or "async"
  int staleness = 0;                      // of "ssp"
  std::vector<std::string> worker_flags;  // "--backup-workers=1"
};

// "ps-bsp,ps-ssp:3,ps-async,ring". A way may carry flags of its workers:
// "ps-bsp+backup-workers=1". INVALID_ARGUMENT names the part that is none of
// these, or that comes twice.
absl::StatusOr<std::vector<WaySpec>> ParseWays(absl::string_view text);

// What the way means, in a sentence for people who are new to it.
std::string Explain(const WaySpec& spec);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_WAY_SPEC_H_
