// How many cores of this host a process may use, and how many of them a part of
// it may take.
#ifndef PSRING_COMMON_HOST_CORES_H_
#define PSRING_COMMON_HOST_CORES_H_

#include <sched.h>

#include <algorithm>

namespace psring {

// The cores that this process may run on (its affinity, which containers and
// taskset set): at least 1.
inline int HostCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

// Threads of a sum, where `sharers` processes of this host make one at a time:
// more than 4 gain nothing, as memory is the limit.
inline int ThreadsFor(int sharers) {
  return std::clamp(HostCores() / sharers, 1, 4);
}

}  // namespace psring

#endif  // PSRING_COMMON_HOST_CORES_H_
