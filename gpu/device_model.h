// A worker's model on its GPU: the flat allocations that libtorch's tensors,
// the exchange and the optimizer point into.
#ifndef PSRING_GPU_DEVICE_MODEL_H_
#define PSRING_GPU_DEVICE_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "gpu/device.h"

namespace psring {

// Zeroed float32 memory of a device, which outlives it. Movable; the address
// never changes.
class DeviceBuffer {
 public:
  // RESOURCE_EXHAUSTED names `what`, its size and what is free.
  static absl::StatusOr<DeviceBuffer> Create(Device& device,
                                             const std::string& what,
                                             int64_t num_elements);

  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  float* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t size_bytes() const {
    return size_ * static_cast<int64_t>(sizeof(float));
  }
  absl::Span<float> span() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  Device* device_ = nullptr;
  float* data_ = nullptr;
  int64_t size_ = 0;
};

// Owned by the trainer's thread, as FlatModel is.
struct DeviceModel {
  // `num_slots`: of the optimizer's state.
  static absl::StatusOr<DeviceModel> Create(Device& device, Layout layout,
                                            int num_slots);

  // Each slot's element `begin`.
  std::vector<float*> SlotsAt(int64_t begin) const;

  Layout layout;
  DeviceBuffer parameters;
  DeviceBuffer gradients;
  std::vector<DeviceBuffer> slots;
  // What fills the gradients and reads the parameters; the trainer's, who may
  // change it between two calls of the exchange.
  Stream compute = kComputeStream;
};

}  // namespace psring

#endif  // PSRING_GPU_DEVICE_MODEL_H_
