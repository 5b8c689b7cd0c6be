// Trains in one way, as processes of this host, and collects what came out.
#ifndef PSRING_CLI_MODE_RUN_H_
#define PSRING_CLI_MODE_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/comparison.h"
#include "cli/job.h"
#include "cli/mode_spec.h"
#include "common/net/cancellation.h"

namespace psring {

struct ModeRun {
  ModeResult result;
  std::string weights_path;  // below `directory`
};

// `job` holds everything but the mode and where things go: to `directory`,
// which exists. Shows progress on stdout. Blocks until every process has ended.
// After an error `exit_code` is what this program should end with.
absl::StatusOr<ModeRun> RunMode(const ModeSpec& spec, Job job,
                                const std::string& directory,
                                const Cancellation& cancellation,
                                int* exit_code);

}  // namespace psring

#endif  // PSRING_CLI_MODE_RUN_H_
