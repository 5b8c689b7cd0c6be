// The command lines of a job's processes on this host, and their start.
#ifndef PSRING_LAB_HOST_JOB_H_
#define PSRING_LAB_HOST_JOB_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/cluster/security.h"
#include "common/net/address.h"
#include "lab/host/child.h"
#include "lab/host/process_groups.h"
#include "lab/host/supervisor.h"

namespace psring {

struct Job {
  std::string mode = "ps";  // or "ring"
  int servers = 1;          // "ps" only
  int workers = 2;
  // 0: this host's cores shared out; -1: the workers' program decides.
  int threads_per_worker = 0;
  std::string ps_binary;
  std::string worker_binary;
  std::string metrics_dir;   // of every process; empty: no metrics
  std::string timeline_dir;  // of every process; empty: no timeline
  std::string tensorboard;   // of every process; empty: nothing for it
  // Where the process that hosts the coordinator shows the job, and the file of
  // the page's token; empty: nowhere, no file.
  std::string page = {};
  std::string page_token_file = {};
  std::vector<std::string> worker_flags;
  std::vector<std::string> server_flags;

  // What every worker runs in place of worker_binary, which then has no flags,
  // and variables that it is given; see script_job.h.
  std::vector<std::string> script;
  std::map<std::string, std::string> script_variables;
  std::string metric;  // a regular expression; see study/printed_metric.h
  bool metric_is_loss = false;

  // On hosts of their own (namespaces): where the coordinator's host is reached
  // by the others, and, by rank, what goes before a process's command line.
  std::string coordinator_address = "127.0.0.1";
  std::vector<std::vector<std::string>> server_prefixes;
  std::vector<std::vector<std::string>> worker_prefixes;

  Security security = {};  // what the processes are handed
  // See SupervisorOptions; of whoever starts the job.
  ProcessGroups* groups = nullptr;
};

// INVALID_ARGUMENT when a flag for processes is one that the launcher gives to
// them. `own`: the launcher's own flags, which users give to it.
absl::Status CheckFlags(const std::vector<std::string>& flags,
                        const std::vector<std::string>& own);

// The process that hosts the coordinator, on a port that the system chooses and
// that it writes to `port_file`: server 0, or worker 0 of a ring.
Command HostCommand(const Job& job, const std::string& port_file);

// All the others.
std::vector<Command> OtherCommands(const Job& job, int coordinator_port);

// Starts the host, waits for its port, in a ring at least for the workers'
// --join-timeout (60 s), and starts the others. Returns where the
// coordinator listens. After an error what has been started still runs:
// the caller stops or awaits it. FAILED_PRECONDITION, with the remedy, where
// the host could not write its port.
absl::StatusOr<HostPort> StartJob(const Job& job, Supervisor& supervisor,
                                  absl::Duration timeout = absl::Seconds(30));

}  // namespace psring

#endif  // PSRING_LAB_HOST_JOB_H_
