// How much of a GPU's memory libtorch has taken.
#ifndef PSRING_WORKER_TORCH_GPU_MEMORY_H_
#define PSRING_WORKER_TORCH_GPU_MEMORY_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace psring {

// Bytes. Reserved: what it holds, to allocate from.
struct GpuMemory {
  int64_t allocated = 0;
  int64_t reserved = 0;
  int64_t peak_allocated = 0;
  int64_t peak_reserved = 0;
};

// Nothing where this libtorch does not tell.
std::optional<GpuMemory> GpuMemoryOf(c10::Device device);

}  // namespace psring

#endif  // PSRING_WORKER_TORCH_GPU_MEMORY_H_
