// What this build is made of.
#ifndef PSRING_CLI_VERSION_H_
#define PSRING_CLI_VERSION_H_

#include <string>

#include "absl/status/statusor.h"

namespace psring {

// The repository's commit that was built, or "unknown".
std::string BuiltCommit();

// The libtorch that the worker's program runs with, e.g. "2.13.0". An error
// when that program is missing or does not run.
absl::StatusOr<std::string> LibtorchVersion(const std::string& worker_binary);

// `psring --version`.
int PrintVersion();

}  // namespace psring

#endif  // PSRING_CLI_VERSION_H_
