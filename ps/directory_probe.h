#ifndef PSRING_PS_DIRECTORY_PROBE_H_
#define PSRING_PS_DIRECTORY_PROBE_H_

#include <string>

#include "absl/status/status.h"

namespace psring {

// Does this process see `file`, which worker 0 has just made in the folder of
// checkpoints, and can it write files beside it, as every server writes its
// part of a checkpoint? FAILED_PRECONDITION (a folder of that name, but another
// one) and PERMISSION_DENIED say what to do.
absl::Status ProbeFolderOf(const std::string& file);

}  // namespace psring

#endif  // PSRING_PS_DIRECTORY_PROBE_H_
