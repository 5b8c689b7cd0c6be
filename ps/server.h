// A parameter server: a process's shards, each on a thread of its own.
#ifndef PSRING_PS_SERVER_H_
#define PSRING_PS_SERVER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/cluster/cluster_session.h"
#include "common/model/flat_model.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "common/trace/timeline.h"

namespace psring {

struct ServerOptions {
  ClusterOptions cluster;
  // The server's range is cut among them; 0: this host's cores, at most 4, as a
  // sum uses them while workers that share the host wait for it.
  int shard_threads = 0;
  SameHost same_host = SameHost::kAuto;  // share memory with workers?
  absl::Duration step_timeout = absl::Seconds(60);
  std::string metrics_dir;  // empty: no metrics
  std::string tensorboard;  // its folder; empty: nothing for it
  TimelineOptions timeline;
};

// Joins the job, serves until it ends, and returns its result. Blocks. Errors
// have been told to the coordinator; `cancellation` ends it early. What
// `soft_stop`, if any, asks while workers heed it (announcements.h) is handed
// on to them; otherwise it cancels.
absl::Status RunServer(const ServerOptions& options, Cancellation& cancellation,
                       SoftStop* soft_stop = nullptr);

}  // namespace psring

#endif  // PSRING_PS_SERVER_H_
