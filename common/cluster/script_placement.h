// Where a user's script stands in its job. Unlike `psring worker`
// (placement.h), every process that a launcher started is a worker; servers are
// no processes of the launcher's. Pure.
#ifndef PSRING_COMMON_CLUSTER_SCRIPT_PLACEMENT_H_
#define PSRING_COMMON_CLUSTER_SCRIPT_PLACEMENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cluster/environment.h"
#include "common/cluster/placement.h"

namespace psring {

// What the script says; each wins over the environment.
struct ScriptWish {
  bool ring_mode = true;
  int num_servers = 1;           // with ps mode
  int servers_per_node = 0;      // with ps mode; 0: num_servers counts
  int rank = -1;                 // -1: as the launcher says
  int size = -1;                 // of the workers; -1: as the launcher says
  std::string coordinator = {};  // "HOST:PORT"; empty: as the launcher says
};

// The placement of this process as a worker. Rank 0 hosts the coordinator,
// unless the launcher does. Without a launcher: a job of one.
// INVALID_ARGUMENT names what is missing or contradictory, and the remedy.
absl::StatusOr<Placement> PlaceScript(const ScriptWish& wish,
                                      const LaunchEnvironment& environment);

// The servers that live in this worker's process. Server i lives in worker i,
// round and round where there are more servers than workers; with
// servers_per_node those of a host live in the first of its workers.
std::vector<int> ServersOf(const ScriptWish& wish,
                           const LaunchEnvironment& environment,
                           const Placement& worker);

// The server `rank` of the same job, which a worker of it runs: it joins the
// coordinator at `coordinator`.
Placement PlaceServer(const Placement& worker, int rank,
                      const HostPort& coordinator);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_SCRIPT_PLACEMENT_H_
