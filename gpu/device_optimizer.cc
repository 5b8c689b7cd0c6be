#include "gpu/device_optimizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/state/state_files.h"

namespace psring {

absl::StatusOr<DeviceOptimizer> DeviceOptimizer::Create(
    Device& device, DeviceModel& model, Optimizer optimizer,
    const std::string& name) {
  if (static_cast<int>(model.slots.size()) != optimizer.num_slots()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a model with ", model.slots.size(), " optimizer slots; ",
                     name, " has ", optimizer.num_slots()));
  }
  return DeviceOptimizer(device, model, std::move(optimizer));
}

absl::Status DeviceOptimizer::Update(int64_t update,
                                     absl::Span<const double> rates,
                                     Range range, float scale,
                                     Stream stream) const {
  absl::Status status;
  optimizer_.ForEachFormula(
      update, rates, range, [&](const OptimizerFormula& formula, Range part) {
        status.Update(
            device_.Update(formula, model_.gradients.data() + part.begin, scale,
                           model_.parameters.data() + part.begin,
                           model_.SlotsAt(part.begin), part.size(), stream));
      });
  return status;
}

absl::Status DeviceOptimizer::Copy(void* to, const void* from, FlatBuffer& host,
                                   Stream stream, Wait wait) const {
  const int64_t bytes = host.size() * static_cast<int64_t>(sizeof(float));
  absl::Status status = device_.RegisterHost(host.data(), bytes);
  if (!status.ok()) return status;
  status = device_.Copy(to, from, bytes, stream);
  if (status.ok()) status = wait();
  device_.UnregisterHost(host.data());
  return status;
}

absl::Status DeviceOptimizer::SetState(std::vector<FlatBuffer> slots,
                                       Stream stream, Wait wait) const {
  for (size_t i = 0; i < slots.size() && i < model_.slots.size(); ++i) {
    if (slots[i].size() != model_.slots[i].size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer state of ", slots[i].size(),
                       " elements; the model has ", model_.slots[i].size()));
    }
    absl::Status status =
        Copy(model_.slots[i].data(), slots[i].data(), slots[i], stream, wait);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<FlatBuffer> DeviceOptimizer::CopyToHost(
    const DeviceBuffer& source, Stream stream, Wait wait) const {
  auto copy = FlatBuffer::Create(source.size());
  if (!copy.ok()) return copy;
  absl::Status status = Copy(copy->data(), source.data(), *copy, stream, wait);
  if (!status.ok()) return status;
  return copy;
}

absl::StatusOr<proto::SavedState> DeviceOptimizer::Save(
    const std::string& directory, Stream stream, Wait wait) const {
  const auto parameters = CopyToHost(model_.parameters, stream, wait);
  if (!parameters.ok()) return parameters.status();
  std::vector<FlatBuffer> copies;
  std::vector<const float*> slots;
  for (const DeviceBuffer& slot : model_.slots) {
    auto copy = CopyToHost(slot, stream, wait);
    if (!copy.ok()) return copy.status();
    slots.push_back(copies.emplace_back(*std::move(copy)).data());
  }
  return WriteStateRange(directory, model_.layout, optimizer_.slot_names(),
                         {0, model_.layout.num_elements()}, parameters->data(),
                         slots);
}

absl::Status DeviceOptimizer::FetchSlots(absl::Span<float* const> slots,
                                         Stream stream, Wait wait) const {
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto copy = CopyToHost(model_.slots[i], stream, wait);
    if (!copy.ok()) return copy.status();
    std::copy_n(copy->data(), copy->size(), slots[i]);
  }
  return absl::OkStatus();
}

}  // namespace psring
