// Which workers' gradients are summed within their host before they go to the
// servers: those of the workers that can, each on a GPU of its own
// (Process.sum_device). The first of each host, the group's leader, pushes the
// sum. Where two workers of a host name the same GPU, nobody sums there. Pure.
#ifndef PSRING_COMMON_CLUSTER_HOST_GROUPS_H_
#define PSRING_COMMON_CLUSTER_HOST_GROUPS_H_

#include <vector>

#include "protos/cluster.pb.h"

namespace psring {

// The ranks whose gradients are summed with that worker's, ascending, its own
// among them; it alone where it sums with nobody.
std::vector<int> HostGroupOf(const proto::Welcome& job, int rank);

// By worker: how many workers' gradients its pushes hold; 0: it pushes nothing.
std::vector<int> GradientsPushed(const proto::Welcome& job);

// That group's own job: its workers alone, and this worker's place among them.
proto::Welcome HostGroupJob(const proto::Welcome& job);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_HOST_GROUPS_H_
