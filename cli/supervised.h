// A command that starts processes and shows what they print until they end.
#ifndef PSRING_CLI_SUPERVISED_H_
#define PSRING_CLI_SUPERVISED_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/cluster/security.h"
#include "common/net/address.h"
#include "common/net/cancellation.h"
#include "common/process/command_line.h"
#include "lab/host/supervisor.h"

namespace psring {

struct SupervisedFlags {
  std::string log_dir;  // empty: output is not kept
  double grace_period_s = 30;
  int stopped_exit_code = 0;  // after a SIGTERM that all have survived
  int max_restarts = 0;

  void AddTo(CommandLine& line);
};

// One of the times that the processes are started.
struct Attempt {
  int restarts = 0;       // those before it
  bool has_next = false;  // its failure is followed by another
  // Cancelled when the user wants the job to end.
  const Cancellation* cancellation = nullptr;
};

// Starts all processes and tells where their coordinator listens.
using StartProcesses =
    std::function<absl::StatusOr<HostPort>(Supervisor&, const Attempt&)>;
// Told how an attempt has failed, once its processes have ended.
using OnFailure = std::function<void(const Failure&)>;

// Starts the processes and waits for their end or for a signal, which stops
// them; SIGUSR1 is handed on to them. Processes that fail are all started
// again, at most max_restarts times, unless their flags are wrong (exit code
// 2); so are those that could be started before and cannot be now. Their lines
// go to stdout and, with a log_dir, to files; below them a terminal shows how
// far the job is, and a file gets a line of it now and then. Says on stderr
// what went wrong as `command`; the exit code: that of the process that failed
// first, at last; the flag's after a SIGTERM that all have survived.
int RunSupervised(const std::string& command, const SupervisedFlags& flags,
                  const Security& security, const StartProcesses& start,
                  const OnFailure& on_failure = nullptr);

}  // namespace psring

#endif  // PSRING_CLI_SUPERVISED_H_
