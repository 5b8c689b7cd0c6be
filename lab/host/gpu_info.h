// Which CUDA driver and NCCL this host has. Neither is linked: both are looked
// for while running.
#ifndef PSRING_LAB_HOST_GPU_INFO_H_
#define PSRING_LAB_HOST_GPU_INFO_H_

#include <optional>
#include <string>

namespace psring {

struct CudaInfo {
  std::string driver_version;  // the CUDA version that the driver supports
  int num_devices = 0;
};

// Nothing where there is no driver.
std::optional<CudaInfo> FindCuda();

// NCCL's version; nothing where there is none.
std::optional<std::string> FindNccl();

// The --device of all jobs that are held against each other on a host with
// `num_gpus`, the largest with so many workers: "auto", or "cpu" where workers
// would have to share.
std::string CommonDevice(int most_workers, int num_gpus);

}  // namespace psring

#endif  // PSRING_LAB_HOST_GPU_INFO_H_
