// A command that starts processes and shows what they print until they end.
#ifndef PSRING_CLI_SUPERVISED_H_
#define PSRING_CLI_SUPERVISED_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/cluster/security.h"
#include "common/net/address.h"
#include "common/process/command_line.h"
#include "lab/host/supervisor.h"

namespace psring {

struct SupervisedFlags {
  std::string log_dir;  // empty: output is not kept
  double grace_period_s = 30;
  int stopped_exit_code = 0;  // after a SIGTERM that all have survived

  void AddTo(CommandLine& line);
};

// Calls `start`, which starts the processes and tells where their coordinator
// listens, and waits for their end or for a signal, which stops them; SIGUSR1
// is handed on to them. Their lines go to stdout and, with a log_dir, to files;
// below them a terminal shows how far the job is, and a file gets a line of it
// now and then. Says on stderr what went wrong as `command`; the exit code:
// that of the first process that failed; the flag's after a SIGTERM that all
// have survived.
int RunSupervised(
    const std::string& command, const SupervisedFlags& flags,
    const Security& security,
    const std::function<absl::StatusOr<HostPort>(Supervisor&)>& start);

}  // namespace psring

#endif  // PSRING_CLI_SUPERVISED_H_
