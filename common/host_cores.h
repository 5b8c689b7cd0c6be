// How many cores this host has, and how many of them a part of it may take.
#ifndef PSRING_COMMON_HOST_CORES_H_
#define PSRING_COMMON_HOST_CORES_H_

#include <algorithm>
#include <thread>

namespace psring {

// At least 1.
inline int HostCores() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Threads of a sum, where `sharers` processes of this host make one at a time:
// more than 4 gain nothing, as memory is the limit.
inline int ThreadsFor(int sharers) {
  return std::clamp(HostCores() / sharers, 1, 4);
}

}  // namespace psring

#endif  // PSRING_COMMON_HOST_CORES_H_
