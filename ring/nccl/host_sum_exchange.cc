#include "ring/nccl/host_sum_exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

constexpr int kLeader = 0;  // its place in the group

}  // namespace

HostSumExchange::HostSumExchange(Device& device, DeviceModel& model,
                                 proto::Welcome group,
                                 std::unique_ptr<GradientExchange> inner,
                                 std::unique_ptr<NcclCommunicator> communicator,
                                 absl::Duration step_timeout,
                                 const NcclTracks& tracks)
    : ForwardingExchange(std::move(inner)),
      device_(device),
      model_(model),
      group_(std::move(group)),
      step_timeout_(step_timeout),
      communicator_(std::move(communicator)),
      sums_(*communicator_, model_, group_, step_timeout, tracks,
            [this](int bucket, int64_t step) {
              MutexLock lock(&mutex_);
              launched_.push_back(bucket);
              return absl::OkStatus();
            }) {}

absl::StatusOr<std::unique_ptr<HostSumExchange>> HostSumExchange::Create(
    NcclApi api, Device& device, Cancellation& cancellation, DeviceModel& model,
    proto::Welcome group, NcclOptions options,
    std::unique_ptr<GradientExchange> inner, absl::Duration step_timeout,
    const NcclTracks& tracks) {
  const Time deadline = Now() + step_timeout;
  auto communicator =
      NcclCommunicator::Create(std::move(api), device, cancellation, group,
                               std::move(options), deadline);
  if (!communicator.ok()) return communicator.status();
  for (const DeviceBuffer* buffer : {&model.gradients, &model.parameters}) {
    absl::Status status =
        (*communicator)
            ->RegisterBuffer(buffer->data(), buffer->size_bytes(), deadline);
    if (!status.ok()) return status;
  }
  std::unique_ptr<HostSumExchange> exchange(
      new HostSumExchange(device, model, std::move(group), std::move(inner),
                          *std::move(communicator), step_timeout, tracks));
  for (Event* event : {&exchange->computed_, &exchange->finished_}) {
    const auto created = device.CreateEvent();
    if (!created.ok()) return created.status();
    *event = *created;
  }
  return exchange;
}

absl::Status HostSumExchange::FollowCompute() {
  if (absl::Status s = device_.Record(computed_, model_.compute); !s.ok()) {
    return s;
  }
  return device_.WaitFor(communicator_->stream(), computed_);
}

absl::Status HostSumExchange::LeadCompute() {
  absl::Status status = device_.Record(finished_, communicator_->stream());
  if (!status.ok()) return status;
  return device_.WaitFor(model_.compute, finished_);
}

absl::Status HostSumExchange::Join(std::vector<FlatBuffer> slots,
                                   ParametersArrived arrived, Time deadline) {
  if (absl::Status s = FollowCompute(); !s.ok()) return s;
  absl::Status joined = OnStream([&](GradientExchange& exchange) {
    return exchange.Join(std::move(slots), nullptr, deadline);
  });
  if (!joined.ok()) return joined;
  // The leader may take long, as long as parameters come. Where it fails, the
  // job ends.
  const auto all = communicator_->Gather("joined", "", Time::InfiniteFuture());
  if (!all.ok()) return all.status();
  deadline = std::max(deadline, Now() + step_timeout_);
  communicator_->SetComputeStream(model_.compute);
  return communicator_->Broadcast(model_.parameters.span(), kLeader, deadline);
}

absl::Status HostSumExchange::Submit(int bucket) {
  if (absl::Status s = sums_.Submit(bucket, step()); !s.ok()) return s;
  return PassOn();
}

absl::Status HostSumExchange::PassOn() {
  std::deque<int> launched;
  {
    MutexLock lock(&mutex_);
    launched.swap(launched_);
  }
  return OnStream([&](GradientExchange& exchange) {
    for (const int bucket : launched) {
      if (absl::Status s = exchange.Submit(bucket); !s.ok()) return s;
    }
    return absl::OkStatus();
  });
}

absl::Status HostSumExchange::Finish(Time deadline) {
  const int64_t step = this->step();
  if (absl::Status s = sums_.LaunchAll(step, deadline); !s.ok()) return s;
  if (absl::Status s = PassOn(); !s.ok()) return s;
  // Backward reads the parameters that are about to be overwritten.
  communicator_->SetComputeStream(model_.compute);
  const absl::StatusOr<Event> ready = communicator_->RecordReady();
  if (!ready.ok()) return ready.status();
  absl::Status status = FollowCompute();
  if (!status.ok()) return status;
  status = OnStream(
      [&](GradientExchange& exchange) { return exchange.Finish(deadline); });
  if (!status.ok()) return status;
  // The leader may take long, as long as parameters come. Where it fails, or is
  // late, the job ends, and so does this wait.
  const bool leads = communicator_->rank() == kLeader;
  status = communicator_->EnqueueBroadcast(
      model_.parameters.span(), kLeader,
      absl::StrCat("parameters of step ", step), *ready,
      leads ? step_timeout_ : absl::InfiniteDuration());
  if (!status.ok()) return status;
  if (absl::Status s = LeadCompute(); !s.ok()) return s;
  if (leads) return communicator_->Look();
  // The watchdog keeps the deadline.
  return communicator_->Drain(Time::InfiniteFuture());
}

absl::Status HostSumExchange::Synchronise(Before next, Time deadline) {
  if (absl::Status s = communicator_->Drain(deadline); !s.ok()) return s;
  absl::Status status = OnStream([&](GradientExchange& exchange) {
    return exchange.Synchronise(next, deadline);
  });
  if (!status.ok()) return status;
  return LeadCompute();
}

}  // namespace psring
