// What tells one script's comparison from another's.
#ifndef PSRING_CLI_SCRIPT_IDENTITY_H_
#define PSRING_CLI_SCRIPT_IDENTITY_H_

#include <map>
#include <string>

#include "lab/host/arguments.h"

namespace psring {

// What a script's runs depend on, beside the flags: the first file that its
// command names (others may be what it writes), and the variables that psring
// reads for it.
std::map<std::string, std::string> DescribeScript(const Args& command);

}  // namespace psring

#endif  // PSRING_CLI_SCRIPT_IDENTITY_H_
