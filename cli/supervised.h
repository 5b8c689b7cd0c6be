// A command that starts processes and shows what they print until they end.
#ifndef PSRING_CLI_SUPERVISED_H_
#define PSRING_CLI_SUPERVISED_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "lab/host/supervisor.h"

namespace psring {

// Calls `start`, which starts the processes, and waits for their end or for a
// signal, which stops them. Their lines go to stdout and, with a `log_dir`, to
// files. Says on stderr what went wrong as `command`; the exit code: that of
// the first process that failed.
int RunSupervised(const std::string& command, const std::string& log_dir,
                  const std::function<absl::Status(Supervisor&)>& start);

}  // namespace psring

#endif  // PSRING_CLI_SUPERVISED_H_
