// How much memory this process can still get.
#ifndef PSRING_COMMON_NET_AVAILABLE_MEMORY_H_
#define PSRING_COMMON_NET_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

namespace psring {

// Bytes: the host's, or what the limit of a container or a Slurm job (cgroup v1
// or v2, of the process's group and of those around it) leaves, if that is
// less. The page cache counts as available. What the kernel does not say sets
// no bound. `root`: where /proc and /sys are.
int64_t AvailableMemory(const std::string& root = "");

}  // namespace psring

#endif  // PSRING_COMMON_NET_AVAILABLE_MEMORY_H_
