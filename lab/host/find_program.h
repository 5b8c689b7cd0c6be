// Where a program of this machine is.
#ifndef PSRING_LAB_HOST_FIND_PROGRAM_H_
#define PSRING_LAB_HOST_FIND_PROGRAM_H_

#include <optional>
#include <string>

namespace psring {

// The first executable of that name in $PATH, or in the folders of the system's
// administrator, which are not in everybody's.
std::optional<std::string> FindProgram(const std::string& name);

}  // namespace psring

#endif  // PSRING_LAB_HOST_FIND_PROGRAM_H_
