// What this build is made of.
#ifndef PSRING_CLI_VERSION_H_
#define PSRING_CLI_VERSION_H_

#include <string>

#include "absl/status/statusor.h"

namespace psring {

// The repository's commit that was built, or "unknown".
std::string BuiltCommit();

struct Libtorch {
  std::string version;        // "2.13.0"
  std::string cuda = "none";  // CUDA's version, "13.0"
  std::string folder;         // where its libraries lie; empty: unknown
};

// The one that the worker's program runs with. An error when that program is
// missing or does not run.
absl::StatusOr<Libtorch> FindLibtorch(const std::string& worker_binary);

// `psring --version`.
int PrintVersion();

}  // namespace psring

#endif  // PSRING_CLI_VERSION_H_
