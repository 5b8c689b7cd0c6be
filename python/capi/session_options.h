// The JSON that psring_join takes.
#ifndef PSRING_PYTHON_CAPI_SESSION_OPTIONS_H_
#define PSRING_PYTHON_CAPI_SESSION_OPTIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/own_servers.h"
#include "common/cluster/script_placement.h"
#include "common/model/flat_model.h"

namespace psring {

// What psring_join was told; see psring.h.
struct SessionOptions {
  ScriptWish wish;
  ServerOptions server;  // its cluster apart: of the servers that live here
  bool own_servers = true;
  std::string advertise;
  std::string ports;
  std::string interface;
  SameHost same_host = SameHost::kAuto;
  absl::Duration join_timeout = absl::Seconds(60);
  absl::Duration heartbeat_timeout = kHeartbeatTimeout;
  absl::Duration step_timeout = absl::Seconds(60);
  absl::Duration progress_timeout;  // 0: none, as scripts may do anything
  int hang_signal = 0;              // which this process sends itself; 0: none
  std::string metrics_dir;          // empty: none
  std::string tensorboard;          // its folder; empty: nothing for it
  std::string page;  // where the job is shown, if its coordinator is here
  std::string page_token_file;
  std::string log_level = "warn";
};

// INVALID_ARGUMENT names the key and what it takes.
absl::StatusOr<SessionOptions> ParseSessionOptions(const std::string& text);

}  // namespace psring

#endif  // PSRING_PYTHON_CAPI_SESSION_OPTIONS_H_
