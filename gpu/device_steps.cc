#include "gpu/device_steps.h"

#include "common/optim/optimizer.h"

namespace psring {

absl::StatusOr<std::unique_ptr<OwnSteps>> DeviceSteps::Create(
    const proto::OptimizerSettings& optimizer, Device& device,
    DeviceModel& model, const Cancellation& cancellation) {
  auto own = Optimizer::Create(optimizer);
  if (!own.ok()) return own.status();
  auto on_device =
      DeviceOptimizer::Create(device, model, *std::move(own), optimizer.name());
  if (!on_device.ok()) return on_device.status();
  const absl::StatusOr<Event> copied = device.CreateEvent();
  if (!copied.ok()) return copied.status();
  return std::unique_ptr<OwnSteps>(new DeviceSteps(
      device, model, *std::move(on_device), cancellation, *copied));
}

absl::Status DeviceSteps::AwaitCompute(Time deadline) {
  absl::Status status = device_.Record(copied_, model_.compute);
  if (!status.ok()) return status;
  return Await(device_, copied_, deadline, cancellation_);
}

absl::Status DeviceSteps::SetState(std::vector<FlatBuffer> slots,
                                   Time deadline) {
  return optimizer_.SetState(std::move(slots), model_.compute,
                             [&] { return AwaitCompute(deadline); });
}

absl::Status DeviceSteps::Step(int64_t update, double rate) {
  return optimizer_.Update(update, absl::MakeConstSpan(&rate, 1),
                           {0, model_.layout.num_elements()}, 1.0f,
                           model_.compute);
}

absl::Status DeviceSteps::OfferParameters() {
  return device_.Copy(model_.gradients.data(), model_.parameters.data(),
                      model_.parameters.size_bytes(), model_.compute);
}

absl::StatusOr<proto::SavedState> DeviceSteps::Save(
    const std::string& directory, Time deadline) {
  return optimizer_.Save(directory, model_.compute,
                         [&] { return AwaitCompute(deadline); });
}

absl::Status DeviceSteps::FetchSlots(absl::Span<float* const> slots,
                                     Time deadline) {
  return optimizer_.FetchSlots(slots, model_.compute,
                               [&] { return AwaitCompute(deadline); });
}

}  // namespace psring
