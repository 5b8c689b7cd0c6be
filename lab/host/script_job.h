// The command lines of a script's processes on this host, and the coordinator
// of their job.
#ifndef PSRING_LAB_HOST_SCRIPT_JOB_H_
#define PSRING_LAB_HOST_SCRIPT_JOB_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/cluster/coordinator.h"
#include "common/cluster/security.h"
#include "common/net/address.h"
#include "common/net/context.h"
#include "lab/host/arguments.h"
#include "lab/host/child.h"
#include "lab/host/supervisor.h"

namespace psring {

struct ScriptJob {
  std::string mode = "ring";  // "ps", or "ddp": a ring to the job
  int servers = 1;            // "ps" only; threads of the first workers
  int workers = 2;            // on this host
  int size = 0;               // on all hosts; 0: as many as here
  int first_rank = 0;         // of this host's workers
  // "HOST:PORT", which the launcher of rank 0 listens on; empty: loopback, and
  // a port that the system chooses.
  std::string coordinator;
  double join_timeout_s = 60;
  double heartbeat_timeout_s = 5;
  int restarts = 0;  // of it, so far
  // Whether its failure is followed by another start, to which workers of other
  // hosts may come while this one is not over yet.
  bool may_come_again = false;
  std::string page;                 // where the job is shown; empty: nowhere
  std::string page_token_file;      // empty: a new token
  int threads_per_worker = 0;       // 0: this host's cores shared out
  bool torchrun_variables = false;  // says each worker's place as torchrun, too
  std::map<std::string, std::string> extra;  // more variables
  Args command;                              // of every worker
  Security security = {};                    // what the workers are handed

  int job_size() const { return size > 0 ? size : workers; }
};

inline constexpr double kMaxTimeoutS = 86400;
inline constexpr double kMinJoinTimeoutS = 1;
inline constexpr double kMinHeartbeatTimeoutS = 2;

// Where they are set, PSRING_JOIN_TIMEOUT_S is the job's join_timeout_s, and
// PSRING_HEARTBEAT_TIMEOUT_S its heartbeat_timeout_s. INVALID_ARGUMENT names
// the variable and its value.
absl::Status TakeJoinTimeout(ScriptJob& job);
absl::Status TakeHeartbeatTimeout(ScriptJob& job);

// INVALID_ARGUMENT names the flag that contradicts another.
absl::Status CheckScriptJob(const ScriptJob& job);

// This host's address for the others: --interface and --advertise count where a
// coordinator is named. Errors as ChooseAdvertised's.
absl::StatusOr<AdvertisedAddress> AddressOf(const ScriptJob& job);

// The command line that env runs: a program whose path has a "=" would be a
// variable to it.
Args ForEnv(Args command);

// What the worker `index` of this host runs.
Command WorkerCommand(const ScriptJob& job, const std::string& coordinator,
                      int index);

// Lives as long as its processes. One thread's own.
class RunningScript {
 public:
  // Starts the coordinator, where rank 0 is on this host, and all workers.
  // After an error what has been started still runs: the caller stops the
  // supervisor.
  static absl::StatusOr<std::unique_ptr<RunningScript>> Start(
      const ScriptJob& job, Supervisor& supervisor);

  // Where the job's coordinator listens, here or elsewhere.
  const HostPort& coordinator() const { return address_; }
  // Tells the other hosts, when the coordinator goes before they know, which
  // process here has failed.
  void TellFailure(const Failure& failure);
  // Whether a process has called init(); true where rank 0 is on another host.
  bool anyone_joined() const {
    return coordinator_ == nullptr || coordinator_->anyone_joined();
  }

 private:
  RunningScript() = default;

  HostPort address_;
  Context context_;
  std::unique_ptr<Coordinator> coordinator_;  // null: on another host
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_SCRIPT_JOB_H_
