#ifndef PSRING_PS_DIRECTORY_PROBE_H_
#define PSRING_PS_DIRECTORY_PROBE_H_

#include <string>

#include "absl/status/status.h"

namespace psring {

// Can this process write files into `directory`, where every server writes its
// part of a checkpoint? PERMISSION_DENIED says what to do.
absl::Status ProbeDirectory(const std::string& directory);

}  // namespace psring

#endif  // PSRING_PS_DIRECTORY_PROBE_H_
