// What this host is made of.
#ifndef PSRING_COMMON_HOST_HARDWARE_H_
#define PSRING_COMMON_HOST_HARDWARE_H_

#include <cstdint>
#include <string>

namespace psring {

// "AMD EPYC 7B13"; "unknown" where the system does not say.
std::string CpuName();

// Another one after each start of the kernel; "" where the system does not say.
std::string BootId();

// 0 where the system does not say.
int64_t MemoryBytes();

}  // namespace psring

#endif  // PSRING_COMMON_HOST_HARDWARE_H_
