// What to say of a driver, or a GPU, that this program cannot use.
#ifndef PSRING_GPU_DRIVER_CHECK_H_
#define PSRING_GPU_DRIVER_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "gpu/device.h"

namespace psring {

// "13.0", as CUDA numbers its versions: 13000.
std::string CudaVersionName(int version);

// Why CUDA does not start here. `driver`: the CUDA that the driver is for, 0
// without one; `built_with`: this program's; `error`: in CUDA's words.
// FAILED_PRECONDITION where a driver is there, and so, most likely, a GPU;
// UNAVAILABLE where none is.
absl::Status CannotStartCuda(int driver, int built_with,
                             const std::string& error);

// FAILED_PRECONDITION where a GPU is older than those that psring's kernels are
// for.
absl::Status CheckGeneration(const DeviceInfo& gpu);

}  // namespace psring

#endif  // PSRING_GPU_DRIVER_CHECK_H_
