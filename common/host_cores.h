// How many cores of this host a process may use, and how many of them a part of
// it may take.
#ifndef PSRING_COMMON_HOST_CORES_H_
#define PSRING_COMMON_HOST_CORES_H_

#include <algorithm>
#include <string>

namespace psring {

// At least 1: the cores that this process may run on (its affinity, which
// taskset and cpusets set) or, where a container has a limit of CPU time
// (docker run --cpus, Kubernetes' limits), as many as that keeps busy. The
// limit is what it was at the first call. Any thread.
int HostCores();

// The limit that this process's control groups set, in whole cores, rounded
// down and at least 1; 0: none. `root`: where /proc and /sys are.
int CoresOfQuota(const std::string& root = "");

// Threads of a sum, where `sharers` processes of this host make one at a time:
// more than 4 gain nothing, as memory is the limit.
inline int ThreadsFor(int sharers) {
  return std::clamp(HostCores() / sharers, 1, 4);
}

}  // namespace psring

#endif  // PSRING_COMMON_HOST_CORES_H_
