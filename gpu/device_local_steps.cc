#include "gpu/device_local_steps.h"

#include "absl/strings/str_cat.h"
#include "common/state/state_files.h"

namespace psring {

absl::StatusOr<std::unique_ptr<DeviceLocalSteps>> DeviceLocalSteps::Create(
    std::unique_ptr<GradientExchange> exchange, const proto::JobSpec& spec,
    JobPlan plan, Device& device, DeviceModel& model,
    const Cancellation& cancellation) {
  auto own = Optimizer::Create(plan.optimizer);
  if (!own.ok()) return own.status();
  if (static_cast<int>(model.slots.size()) != own->num_slots()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a model with ", model.slots.size(), " optimizer slots; ",
                     plan.optimizer.name(), " has ", own->num_slots()));
  }
  const absl::StatusOr<Event> copied = device.CreateEvent();
  if (!copied.ok()) return copied.status();
  std::unique_ptr<DeviceLocalSteps> steps(
      new DeviceLocalSteps(std::move(exchange), spec, std::move(plan),
                           *std::move(own), device, model, cancellation));
  steps->copied_ = *copied;
  return steps;
}

absl::Status DeviceLocalSteps::Copy(void* to, const void* from,
                                    FlatBuffer& host, Time deadline) {
  const int64_t bytes = host.size() * static_cast<int64_t>(sizeof(float));
  absl::Status status = device_.RegisterHost(host.data(), bytes);
  if (!status.ok()) return status;
  status = device_.Copy(to, from, bytes, model_.compute);
  status.Update(device_.Record(copied_, model_.compute));
  if (status.ok()) status = Await(device_, copied_, deadline, cancellation_);
  device_.UnregisterHost(host.data());
  return status;
}

absl::Status DeviceLocalSteps::Join(std::vector<FlatBuffer> slots,
                                    ParametersArrived /*arrived: by worker*/,
                                    Time deadline) {
  for (size_t i = 0; i < slots.size() && i < model_.slots.size(); ++i) {
    absl::Status status =
        Copy(model_.slots[i].data(), slots[i].data(), slots[i], deadline);
    if (!status.ok()) return status;
  }
  return inner().Join({}, nullptr, deadline);
}

absl::Status DeviceLocalSteps::Finish(Time deadline) {
  const double rate = plan_.RateAt(step_);
  absl::Status status;
  optimizer_.ForEachFormula(
      plan_.UpdatesAt(step_) + 1, absl::MakeConstSpan(&rate, 1),
      {0, model_.layout.num_elements()},
      [&](const OptimizerFormula& formula, Range part) {
        status.Update(device_.Update(
            formula, model_.gradients.data() + part.begin, 1.0f,
            model_.parameters.data() + part.begin, model_.SlotsAt(part.begin),
            part.size(), model_.compute));
      });
  if (!status.ok()) return status;
  ++step_;
  averaged_ = false;
  return step_ % period_ == 0 ? Average(deadline) : absl::OkStatus();
}

absl::Status DeviceLocalSteps::Average(Time deadline) {
  if (averaged_) return absl::OkStatus();
  absl::Status status =
      device_.Copy(model_.gradients.data(), model_.parameters.data(),
                   model_.parameters.size_bytes(), model_.compute);
  if (!status.ok()) return status;
  for (int bucket = 0; bucket < model_.layout.num_buckets(); ++bucket) {
    if (absl::Status s = inner().Submit(bucket); !s.ok()) return s;
  }
  if (absl::Status s = inner().Finish(deadline); !s.ok()) return s;
  averaged_ = true;
  return absl::OkStatus();
}

absl::Status DeviceLocalSteps::Synchronise(Before next, Time deadline) {
  if (absl::Status s = Average(deadline); !s.ok()) return s;
  return inner().Synchronise(next, deadline);
}

absl::StatusOr<proto::SavedState> DeviceLocalSteps::SaveState(
    const std::string& directory, Time deadline) {
  if (!averaged_) {
    return absl::FailedPreconditionError(
        absl::StrCat("a checkpoint of step ", step_,
                     ", between averagings: with --local-steps=", period_,
                     " every worker has parameters of its own there"));
  }
  std::vector<const float*> sources = {model_.parameters.data()};
  for (const DeviceBuffer& slot : model_.slots) sources.push_back(slot.data());
  std::vector<FlatBuffer> copies;
  for (const float* source : sources) {
    auto copy = FlatBuffer::Create(model_.layout.num_elements());
    if (!copy.ok()) return copy.status();
    absl::Status status = Copy(copy->data(), source, *copy, deadline);
    if (!status.ok()) return status;
    copies.push_back(*std::move(copy));
  }
  std::vector<const float*> slots;
  for (size_t i = 1; i < copies.size(); ++i) slots.push_back(copies[i].data());
  return WriteStateRange(directory, model_.layout, optimizer_.slot_names(),
                         {0, model_.layout.num_elements()}, copies[0].data(),
                         slots);
}

}  // namespace psring
