// What an examination of this host has found.
#ifndef PSRING_CLI_FINDINGS_H_
#define PSRING_CLI_FINDINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

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

// Of libtorch: its `version`, as the worker's program has told it, and where
// the one lies that was built with, a folder of another host in a bundle.
Finding AboutTorch(const absl::StatusOr<std::string>& version,
                   const std::string& location);

// A line each, a fault's remedy below it, and a last line that sums up.
std::string RenderFindings(const std::vector<Finding>& findings);

bool HasFault(const std::vector<Finding>& findings);

}  // namespace psring

#endif  // PSRING_CLI_FINDINGS_H_
