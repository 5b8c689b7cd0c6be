// Whether a comparison can be made as it is asked for.
#ifndef PSRING_CLI_COMPARE_CHECKS_H_
#define PSRING_CLI_COMPARE_CHECKS_H_

#include "absl/status/status.h"
#include "cli/compare_flags.h"
#include "common/process/command_line.h"
#include "lab/host/arguments.h"
#include "lab/study/study_axes.h"

namespace psring {

// Of flags that `line` has parsed, what their axes came to, and what follows
// `--`. Errors name the flag and the remedy; UNAVAILABLE and PERMISSION_DENIED
// say what this machine lacks for --link.
absl::Status CheckCompare(const CommandLine& line, const CompareFlags& flags,
                          const AxisValues& values, const Args& passed_on);

}  // namespace psring

#endif  // PSRING_CLI_COMPARE_CHECKS_H_
