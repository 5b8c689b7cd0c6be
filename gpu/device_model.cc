#include "gpu/device_model.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace psring {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(Device& device,
                                                  const std::string& what,
                                                  int64_t num_elements) {
  const absl::StatusOr<void*> data =
      device.Allocate(num_elements * static_cast<int64_t>(sizeof(float)));
  if (!data.ok()) {
    return absl::Status(
        data.status().code(),
        absl::StrCat(what, ": ", std::string(data.status().message())));
  }
  DeviceBuffer buffer;
  buffer.device_ = &device;
  buffer.data_ = static_cast<float*>(*data);
  buffer.size_ = num_elements;
  return buffer;
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) device_->Free(data_);
}

absl::StatusOr<DeviceModel> DeviceModel::Create(Device& device, Layout layout,
                                                int num_slots) {
  const int64_t n = layout.num_elements();
  auto parameters = DeviceBuffer::Create(device, "the model's parameters", n);
  if (!parameters.ok()) return parameters.status();
  auto gradients = DeviceBuffer::Create(device, "the model's gradients", n);
  if (!gradients.ok()) return gradients.status();
  std::vector<DeviceBuffer> slots;
  for (int i = 0; i < num_slots; ++i) {
    auto slot = DeviceBuffer::Create(
        device,
        absl::StrCat("the optimizer's state ", i + 1, " of ", num_slots), n);
    if (!slot.ok()) return slot.status();
    slots.push_back(*std::move(slot));
  }
  return DeviceModel{std::move(layout), *std::move(parameters),
                     *std::move(gradients), std::move(slots)};
}

std::vector<float*> DeviceModel::SlotsAt(int64_t begin) const {
  std::vector<float*> at;
  for (const DeviceBuffer& slot : slots) at.push_back(slot.data() + begin);
  return at;
}

}  // namespace psring
