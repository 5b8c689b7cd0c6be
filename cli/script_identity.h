// What tells one script's comparison from another's.
#ifndef PSRING_CLI_SCRIPT_IDENTITY_H_
#define PSRING_CLI_SCRIPT_IDENTITY_H_

#include <map>
#include <string>
#include <vector>

#include "lab/host/arguments.h"

namespace psring {

// What a script's runs depend on, beside the flags: the first file that its
// command names (others may be what it writes) and every Python file, the
// modules beside these that they import, and the variables that psring reads
// for it.
std::map<std::string, std::string> DescribeScript(const Args& command);

// {"the file train.py", "CRC-32 0badcafe"} of each that can be read.
std::map<std::string, std::string> DescribeFiles(const Args& files);

// The Python files that `script` imports, and those that these import, as far
// as they lie in its folder or in packages there: sorted, without itself. Found
// by their import statements; what code imports by itself (importlib) is not.
std::vector<std::string> ImportedFiles(const std::string& script);

}  // namespace psring

#endif  // PSRING_CLI_SCRIPT_IDENTITY_H_
