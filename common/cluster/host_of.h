// Which processes of a job are on one host. Pure.
#ifndef PSRING_COMMON_CLUSTER_HOST_OF_H_
#define PSRING_COMMON_CLUSTER_HOST_OF_H_

#include <cstdint>
#include <string>
#include <utility>

#include "protos/cluster.pb.h"

namespace psring {

// A host's name alone would not do: machines made from one image often share
// it. So its kernel counts, too (Process.boot), as in NCCL's hash of a host.
// Ordered.
using HostId = std::pair<std::string, uint64_t>;
HostId HostOf(const proto::Process& process);

// The place of worker `rank` among the workers of its host, and their number.
struct LocalPlace {
  int index = 0;
  int count = 1;
};
LocalPlace PlaceOnHost(const proto::Welcome& job, int rank);

// Whether all workers are on one host.
bool OnOneHost(const proto::Welcome& job);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_HOST_OF_H_
