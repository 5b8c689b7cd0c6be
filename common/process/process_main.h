// What the mains of `psring ps` and `psring worker` share: flags of the
// cluster, logging, signals, exit codes.
#ifndef PSRING_COMMON_PROCESS_PROCESS_MAIN_H_
#define PSRING_COMMON_PROCESS_PROCESS_MAIN_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/cluster/cluster_session.h"
#include "common/cluster/security.h"
#include "common/model/flat_model.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "common/process/command_line.h"
#include "common/trace/timeline.h"

namespace psring {

// The flags that every process of a job takes. AddTo binds this object's
// fields: it must outlive the parsing.
struct ProcessFlags {
  std::string coordinator;
  bool host_coordinator = false;
  std::string coordinator_port_file;
  int rank = -1;
  int servers = -1;
  int workers = -1;
  std::string mode = "ps";  // of `psring worker`
  std::string advertise;
  std::string ports;
  std::string interface;
  SecurityWish security = {};
  std::string same_host = "auto";
  double join_timeout_s = 60;
  double heartbeat_timeout_s = 5;
  double step_timeout_s = 60;
  double progress_timeout_s = 300;
  std::string metrics_dir;
  std::string tensorboard;
  std::string page;
  std::string page_token_file;
  TimelineOptions timeline;
  std::string log_level = "info";

  void AddTo(CommandLine& line);
  // What the flags and the launcher's environment say together.
  absl::StatusOr<ClusterOptions> Cluster(bool is_ps_process) const;
  SameHost SameHostWish() const {
    return same_host == "off" ? SameHost::kOff : SameHost::kAuto;
  }
  absl::Duration step_timeout() const { return absl::Seconds(step_timeout_s); }
};

// Parses, sets up the log, runs `body` under a SignalWatcher. Returns the exit
// code: 0; 1 and one line on stderr for an error; 2 for bad usage; 128 + the
// number of the signal that ended it. SIGTERM is asked of `soft_stop`, unless
// that is null. SIGUSR1 writes to stderr what all threads do.
int ProcessMain(CommandLine& line, const ProcessFlags& flags, int argc,
                char** argv,
                const std::function<absl::Status(Cancellation&)>& body,
                SoftStop* soft_stop = nullptr);

}  // namespace psring

#endif  // PSRING_COMMON_PROCESS_PROCESS_MAIN_H_
