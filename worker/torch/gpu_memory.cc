#include "worker/torch/gpu_memory.h"

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || \
    (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
#define PSRING_TORCH_HAS_DEVICE_ALLOCATOR
#include <c10/core/CachingDeviceAllocator.h>
#endif

namespace psring {

std::optional<GpuMemory> GpuMemoryOf(c10::Device device) {
#ifdef PSRING_TORCH_HAS_DEVICE_ALLOCATOR
  auto* const allocator =
      dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr || !allocator->initialized()) return std::nullopt;
  const auto stats = allocator->getDeviceStats(device.index());
  constexpr int kAll = 0;  // large and small blocks
  return GpuMemory{
      stats.allocated_bytes[kAll].current, stats.reserved_bytes[kAll].current,
      stats.allocated_bytes[kAll].peak, stats.reserved_bytes[kAll].peak};
#else
  return std::nullopt;
#endif
}

}  // namespace psring
