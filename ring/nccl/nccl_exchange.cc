#include "ring/nccl/nccl_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/optim/job_plan.h"
#include "common/state/state_files.h"

namespace psring {

NcclExchange::NcclExchange(Device& device, DeviceModel& model,
                           const proto::Welcome& job,
                           absl::Duration step_timeout, JobPlan plan,
                           Optimizer optimizer,
                           std::unique_ptr<NcclCommunicator> communicator,
                           const NcclTracks& tracks,
                           absl::Span<const double> rates)
    : device_(device),
      model_(model),
      job_(job),
      plan_(std::move(plan)),
      optimizer_(std::move(optimizer)),
      track_(tracks.trainer),
      rates_(rates),
      communicator_(std::move(communicator)),
      step_(job.spec().first_step()),
      sums_(*communicator_, model_, job_, step_timeout, tracks,
            [this](int bucket, int64_t step) {
              return UpdateBucket(model_.layout.bucket(bucket), step);
            }) {}

absl::StatusOr<std::unique_ptr<NcclExchange>> NcclExchange::Create(
    NcclApi api, Device& device, Cancellation& cancellation, DeviceModel& model,
    const proto::Welcome& job, NcclOptions options, absl::Duration step_timeout,
    const NcclTracks& tracks, absl::Span<const double> rates) {
  JobPlan plan = PlanOf(job.spec(), job.workers_size());
  auto optimizer = Optimizer::ForJob(job.spec(), plan.optimizer, model.layout);
  if (!optimizer.ok()) return optimizer.status();
  if (static_cast<int>(model.slots.size()) != optimizer->num_slots()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a model with ", model.slots.size(), " optimizer slots; ",
        job.spec().optimizer().name(), " has ", optimizer->num_slots()));
  }
  const absl::StatusOr<Event> finished = device.CreateEvent();
  if (!finished.ok()) return finished.status();
  const Time deadline = Now() + step_timeout;
  auto communicator = NcclCommunicator::Create(
      std::move(api), device, cancellation, job, std::move(options), deadline);
  if (!communicator.ok()) return communicator.status();
  absl::Status status =
      (*communicator)
          ->RegisterBuffer(model.gradients.data(), model.gradients.size_bytes(),
                           deadline);
  if (!status.ok()) return status;
  std::unique_ptr<NcclExchange> exchange(new NcclExchange(
      device, model, job, step_timeout, std::move(plan), *std::move(optimizer),
      *std::move(communicator), tracks, rates));
  exchange->finished_ = *finished;
  return exchange;
}

absl::Status NcclExchange::Copy(void* to, const void* from, FlatBuffer& host,
                                Time deadline) {
  const int64_t bytes = host.size() * static_cast<int64_t>(sizeof(float));
  absl::Status status = device_.RegisterHost(host.data(), bytes);
  if (!status.ok()) return status;
  status = device_.Copy(to, from, bytes, communicator_->stream());
  if (status.ok()) status = communicator_->Drain(deadline);
  device_.UnregisterHost(host.data());
  return status;
}

absl::Status NcclExchange::Join(std::vector<FlatBuffer> slots,
                                ParametersArrived arrived, Time deadline) {
  for (size_t i = 0; i < slots.size() && i < model_.slots.size(); ++i) {
    if (slots[i].size() != model_.slots[i].size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer state of ", slots[i].size(),
                       " elements; the model has ", model_.slots[i].size()));
    }
    absl::Status status =
        Copy(model_.slots[i].data(), slots[i].data(), slots[i], deadline);
    if (!status.ok()) return status;
  }
  communicator_->SetComputeStream(model_.compute);
  absl::Status status =
      communicator_->Broadcast(model_.parameters.span(), 0, deadline);
  for (const DeviceBuffer& slot : model_.slots) {
    if (!status.ok()) return status;
    status = communicator_->Broadcast(slot.span(), 0, deadline);
  }
  return status;
}

absl::Status NcclExchange::Submit(int bucket) {
  return sums_.Submit(bucket, step_);
}

absl::Status NcclExchange::UpdateBucket(Range range, int64_t step) {
  if (range.empty()) return absl::OkStatus();
  const double rate = rates_.empty() ? plan_.RateAt(step) : 0.0;
  absl::Status status;
  optimizer_.ForEachFormula(
      plan_.UpdatesAt(step) + 1,
      rates_.empty() ? absl::MakeConstSpan(&rate, 1) : rates_, range,
      [&](const OptimizerFormula& formula, Range part) {
        status.Update(device_.Update(
            formula, model_.gradients.data() + part.begin,
            1.0f / static_cast<float>(job_.workers_size()),
            model_.parameters.data() + part.begin, model_.SlotsAt(part.begin),
            part.size(), communicator_->stream()));
      });
  return status;
}

absl::Status NcclExchange::Finish(Time deadline) {
  if (absl::Status s = sums_.LaunchAll(step_, deadline); !s.ok()) return s;
  absl::Status status = device_.Record(finished_, communicator_->stream());
  status.Update(device_.WaitFor(model_.compute, finished_));
  if (!status.ok()) return status;
  ++step_;
  return communicator_->Look();
}

absl::Status NcclExchange::Synchronise(Before next, Time deadline) {
  TimelineSpan span(track_, "drain", {.step = step_});
  if (absl::Status s = communicator_->Drain(deadline); !s.ok()) return s;
  span.End();
  return communicator_
      ->Gather(absl::StrCat("synchronise/", ++num_synchronised_), "", deadline)
      .status();
}

absl::StatusOr<proto::SavedState> NcclExchange::SaveState(
    const std::string& directory, Time deadline) {
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
