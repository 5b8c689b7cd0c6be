#ifndef PSRING_COMMON_STATE_DIRECTORY_PROBE_H_
#define PSRING_COMMON_STATE_DIRECTORY_PROBE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace psring {

// What the names of such files begin with.
inline constexpr char kProbePrefix[] = ".psring-probe-";

// An empty file of a new name in `directory`, to be removed by who makes it;
// its path. PERMISSION_DENIED where this process cannot write there.
absl::StatusOr<std::string> MakeProbe(const std::string& directory);

// Does this process see `file`, which worker 0 has just made in the folder of
// checkpoints, and can it write files beside it, as every server writes its
// part of a checkpoint? FAILED_PRECONDITION (a folder of that name, but another
// one) and PERMISSION_DENIED say what to do.
absl::Status ProbeFolderOf(const std::string& file);

}  // namespace psring

#endif  // PSRING_COMMON_STATE_DIRECTORY_PROBE_H_
