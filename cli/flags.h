// Flags, parsed the same way by every subcommand.
#ifndef PSRING_CLI_FLAGS_H_
#define PSRING_CLI_FLAGS_H_

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "lab/host/arguments.h"

namespace psring {

// Exit codes beside 0 and a child's own.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// Parses `args`, which lack the program's and the subcommand's names. A value:
// the exit code to end with at once, after --help was printed or one line on
// stderr said which flag is wrong, with its value and what is allowed.
std::optional<int> ParseFlags(CLI::App& app, const Args& args);

// The line that ParseFlags prints, for errors that it cannot see.
int UsageError(const CLI::App& app, const std::string& what);

// The hidden flags --ps-binary, --worker-binary and --rank-binary, which tests
// use.
void AddBinaryFlags(CLI::App& app, Binaries& binaries);

}  // namespace psring

#endif  // PSRING_CLI_FLAGS_H_
