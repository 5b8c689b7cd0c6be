// The ways of training that `psring compare` knows.
#ifndef PSRING_LAB_STUDY_MODE_SPEC_H_
#define PSRING_LAB_STUDY_MODE_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

struct ModeSpec {
  std::string name;                       // as the user wrote it: "ps-ssp:3"
  std::string mode;                       // "ps" or "ring"
  std::string sync;                       // of "ps": "bsp", "ssp" or "async"
  int staleness = 0;                      // of "ssp"
  std::vector<std::string> worker_flags;  // "--backup-workers=1"
};

// "ps-bsp,ps-ssp:3,ps-async,ring". A mode may carry flags of its workers:
// "ps-bsp+backup-workers=1". INVALID_ARGUMENT names the part that is none of
// these, or that comes twice.
absl::StatusOr<std::vector<ModeSpec>> ParseModes(absl::string_view text);

// What the mode means, in a sentence for people who are new to it.
std::string Explain(const ModeSpec& spec);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_MODE_SPEC_H_
