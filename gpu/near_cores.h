// A process near its GPU: on a host with several NUMA nodes, copies between a
// GPU and memory of another node, and launches from there, take longer.
#ifndef PSRING_GPU_NEAR_CORES_H_
#define PSRING_GPU_NEAR_CORES_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace psring {

// The cores of the NUMA node that a GPU belongs to, as the kernel says; empty
// where it does not. `bus_id`: DeviceInfo's.
std::vector<int> CoresNear(const std::string& bus_id,
                           const std::string& sysfs = "/sys");

// How many of these GPUs have the same cores near them as `bus_id`.
int NumNear(const std::string& bus_id, absl::Span<const std::string> bus_ids,
            const std::string& sysfs = "/sys");

// Keeps every thread of this process, and those that they start, to those of
// `cores` that it may use; memory that they touch first comes from there, too.
// A thread that may use none of them stays as it is. How many cores are left to
// the calling thread; 0: it may use none of them.
int KeepTo(absl::Span<const int> cores);

}  // namespace psring

#endif  // PSRING_GPU_NEAR_CORES_H_
