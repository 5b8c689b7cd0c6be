// `psring gpu-check`: what a user runs on a new GPU host.
#ifndef PSRING_CLI_GPU_CHECK_H_
#define PSRING_CLI_GPU_CHECK_H_

#include "lab/host/arguments.h"

namespace psring {

inline constexpr int kExitNoGpu = 3;

// The exit code: 0, kExitNoGpu where there is nothing to check, 1 where
// something is wrong.
int GpuCheck(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_GPU_CHECK_H_
