// What an examination of this host has found.
#ifndef PSRING_CLI_FINDINGS_H_
#define PSRING_CLI_FINDINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/version.h"

namespace psring {

struct Finding {
  enum class Kind {
    kGood,
    kAbsent,  // and not needed
    kFault,   // and needed
  };
  Kind kind = Kind::kGood;
  std::string subject;  // "ZeroMQ"
  std::string what;
  std::string remedy;  // of a fault
};

inline constexpr char kRebuild[] = "./psring build";  // a remedy

// Of `torch`, as the worker's program has told it. `built_with`: the folder of
// the one that the build found. `bundle_version`: the version that a bundle
// needs; empty in a clone.
Finding AboutTorch(const absl::StatusOr<Libtorch>& torch,
                   const std::string& built_with,
                   const std::string& bundle_version);

// A line each, a fault's remedy below it, and a last line that sums up.
std::string RenderFindings(const std::vector<Finding>& findings);

bool HasFault(const std::vector<Finding>& findings);

}  // namespace psring

#endif  // PSRING_CLI_FINDINGS_H_
