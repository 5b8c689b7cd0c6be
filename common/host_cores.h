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

// The limit that the control groups of a process set, of its own group and
// those around it, in whole cores, rounded down and at least 1; 0: none.
// `membership`: the text of /proc/self/cgroup; `root`: where the groups are
// mounted. Version 1 and 2.
int CoresOfQuota(const std::string& membership, const std::string& root);

// Threads of a sum, where `sharers` processes of this host make one at a time:
// more than 4 gain nothing, as memory is the limit.
inline int ThreadsFor(int sharers) {
  return std::clamp(HostCores() / sharers, 1, 4);
}

}  // namespace psring

#endif  // PSRING_COMMON_HOST_CORES_H_
