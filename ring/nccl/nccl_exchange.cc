#include "ring/nccl/nccl_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/optim/job_plan.h"

namespace psring {

NcclExchange::NcclExchange(Device& device, DeviceModel& model,
                           const proto::Welcome& job,
                           absl::Duration step_timeout, JobPlan plan,
                           DeviceOptimizer optimizer,
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
  auto on_device = DeviceOptimizer::Create(device, model, *std::move(optimizer),
                                           job.spec().optimizer().name());
  if (!on_device.ok()) return on_device.status();
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
      device, model, job, step_timeout, std::move(plan), *std::move(on_device),
      *std::move(communicator), tracks, rates));
  exchange->finished_ = *finished;
  return exchange;
}

absl::Status NcclExchange::Join(std::vector<FlatBuffer> slots,
                                ParametersArrived arrived, Time deadline) {
  absl::Status set =
      optimizer_.SetState(std::move(slots), communicator_->stream(),
                          [&] { return communicator_->Drain(deadline); });
  if (!set.ok()) return set;
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
  return optimizer_.Update(
      plan_.UpdatesAt(step) + 1,
      rates_.empty() ? absl::MakeConstSpan(&rate, 1) : rates_, range,
      1.0f / static_cast<float>(job_.workers_size()), communicator_->stream());
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
  return optimizer_.Save(directory, communicator_->stream(),
                         [&] { return communicator_->Drain(deadline); });
}

absl::Status NcclExchange::FetchSlots(absl::Span<float* const> slots,
                                      Time deadline) {
  return optimizer_.FetchSlots(slots, communicator_->stream(),
                               [&] { return communicator_->Drain(deadline); });
}

}  // namespace psring
