// What the commands share, beside the command line itself.
#ifndef PSRING_CLI_COMMAND_H_
#define PSRING_CLI_COMMAND_H_

#include <string>

#include "absl/status/status.h"
#include "common/cluster/security.h"
#include "common/process/command_line.h"
#include "lab/host/arguments.h"

namespace psring {

// The exit code of a command that failed; kExitUsage and a child's own are the
// others.
inline constexpr int kExitFailed = 1;

// The hidden flags --ps-binary, --worker-binary and --rank-binary, which tests
// use.
void AddBinaryFlags(CommandLine& line, Binaries& binaries);

// --key-file, --insecure and --require-encryption, of commands that start
// jobs; `several_hosts`: on several hosts, too.
void AddSecurityFlags(CommandLine& line, SecurityWish& wish,
                      bool several_hosts);

// --page and --page-token-file, of commands that start jobs.
void AddPageFlags(CommandLine& line, std::string& page,
                  std::string& token_file);

// INVALID_ARGUMENT: `page` is no HOST:PORT, or a token is given without one.
absl::Status CheckPageFlags(const CommandLine& line, const std::string& page);

// INVALID_ARGUMENT with the flag's name before what is wrong with its value.
absl::Status OfFlag(const std::string& flag, const absl::Status& status);

// Prints "COMMAND: what went wrong" on stderr. Returns `exit_code`.
int Fail(const std::string& command, const absl::Status& status,
         int exit_code = kExitFailed);

// The exit code of a command whose work ended with `status`, after `signal`
// (0: none): says on stderr that it was interrupted or what went wrong.
int ExitCode(const std::string& command, const absl::Status& status,
             int signal);

// FAILED_PRECONDITION where the host has no `program`, one of Binaries', as in
// the wheel for Python.
absl::Status CheckProgram(const std::string& program);

// Arguments as a shell takes them again: "train.py '--metric=(.*)'".
std::string Quoted(const Args& args);

// The command line, so: "psring compare '--metric=(.*)'".
std::string CommandText(const std::string& command, const Args& args);

// The date and time here, as reports show it: "2026-11-22 04:47 UTC".
std::string DateAndTime();

}  // namespace psring

#endif  // PSRING_CLI_COMMAND_H_
