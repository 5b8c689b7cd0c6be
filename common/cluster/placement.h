// Where a process stands in its job: what its launcher says, merged with what
// the user says in flags. Pure.
#ifndef PSRING_COMMON_CLUSTER_PLACEMENT_H_
#define PSRING_COMMON_CLUSTER_PLACEMENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cluster/environment.h"
#include "common/net/address.h"
#include "protos/cluster.pb.h"

namespace psring {

// What the user told this process.
struct ClusterFlags {
  std::string coordinator;        // --coordinator=HOST:PORT; empty: not given
  bool host_coordinator = false;  // --host-coordinator
  int rank = -1;                  // --rank, within the role; -1: not given
  int num_servers = -1;           // --servers; -1: not given
  int num_workers = -1;           // --workers; -1: not given
  bool ring_mode = false;         // --mode=ring
  bool is_ps_process = false;     // `psring ps`, not `psring worker`
};

struct Placement {
  proto::Role role = proto::ROLE_UNSPECIFIED;
  int rank = -1;        // within its role; -1: the coordinator chooses
  int local_rank = -1;  // among all processes of this host; -1: not known
  HostPort coordinator;
  bool hosts_coordinator = false;
  int num_servers = 0;  // 0: a ring, or this process was told nothing
  int num_workers = 0;  // 0: this process was told nothing
  std::string summary;  // one line for the log: what was used, from where
  std::vector<std::string> warnings;  // and the environment's
};

// Flags win over the environment; where they contradict it, a warning has both
// values. INVALID_ARGUMENT names the flag that is missing or wrong.
//
// Under a launcher the first --servers (1) ranks are servers, all others
// workers, and rank 0 hosts the coordinator. A process with --rank, or one
// that was launched alone with the flags of a larger job, is placed by hand: a
// ring worker hosts the coordinator if --host-coordinator, --rank=0 or
// --workers=1 (without --rank) is given, any other process only if
// --host-coordinator is.
absl::StatusOr<Placement> Place(const ClusterFlags& flags,
                                const LaunchEnvironment& environment);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_PLACEMENT_H_
