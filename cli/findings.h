// What an examination of this host has found.
#ifndef PSRING_CLI_FINDINGS_H_
#define PSRING_CLI_FINDINGS_H_

#include <string>
#include <vector>

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

// A line each, a fault's remedy below it, and a last line that sums up.
std::string RenderFindings(const std::vector<Finding>& findings);

bool HasFault(const std::vector<Finding>& findings);

}  // namespace psring

#endif  // PSRING_CLI_FINDINGS_H_
