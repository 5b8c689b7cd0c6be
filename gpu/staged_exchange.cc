#include "gpu/staged_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace psring {

absl::StatusOr<std::unique_ptr<StagedExchange>> StagedExchange::Create(
    Device& device, DeviceModel& model, FlatModel& host,
    std::unique_ptr<GradientExchange> inner, const Cancellation& cancellation,
    absl::Duration timeout, Track* track) {
  std::unique_ptr<StagedExchange> exchange(new StagedExchange(
      device, model, host, std::move(inner), cancellation, timeout, track));
  if (absl::Status s = exchange->Prepare(); !s.ok()) return s;
  return exchange;
}

absl::Status StagedExchange::Prepare() {
  for (FlatBuffer* buffer : {&host_.parameters, &host_.gradients}) {
    const int64_t size = buffer->size() * static_cast<int64_t>(sizeof(float));
    if (absl::Status s = device_.RegisterHost(buffer->data(), size); !s.ok()) {
      return s;
    }
    registered_.push_back(buffer->data());
  }
  for (Stream* stream : {&leaving_, &returning_}) {
    auto created = device_.CreateStream();
    if (!created.ok()) return created.status();
    *stream = *created;
  }
  filled_.resize(host_.layout.num_buckets());
  left_.resize(host_.layout.num_buckets());
  std::vector<Event*> events = {&backward_done_, &returned_};
  for (Event& event : filled_) events.push_back(&event);
  for (Event& event : left_) events.push_back(&event);
  for (Event* event : events) {
    auto created = device_.CreateEvent();
    if (!created.ok()) return created.status();
    *event = *created;
  }
  return absl::OkStatus();
}

StagedExchange::~StagedExchange() {
  runner_.reset();
  // Copies may still be under way after a failure; nothing can be done for one
  // that never ends but to leave its memory locked.
  for (void* data : registered_) device_.UnregisterHost(data);
}

absl::Status StagedExchange::Join(std::vector<FlatBuffer> slots,
                                  ParametersArrived arrived, Time deadline) {
  if (absl::Status s = FetchParameters(deadline); !s.ok()) return s;
  const auto arrived_here = [this](int bucket) {
    failure_.Update(ReturnBucket(bucket));
  };
  if (absl::Status s = inner().Join(std::move(slots), arrived_here, deadline);
      !s.ok()) {
    return s;
  }
  return FinishReturn();
}

absl::Status StagedExchange::FetchParameters(Time deadline) {
  const int64_t size = model_.parameters.size_bytes();
  absl::Status status = device_.Record(backward_done_, model_.compute);
  status.Update(device_.WaitFor(returning_, backward_done_));
  status.Update(device_.Copy(host_.parameters.data(), model_.parameters.data(),
                             size, returning_));
  status.Update(device_.Record(returned_, returning_));
  if (!status.ok()) return status;
  return Await(device_, returned_, deadline, cancellation_);
}

absl::Status StagedExchange::Submit(int bucket) {
  const Range range = host_.layout.bucket(bucket);
  absl::Status status = device_.Record(filled_[bucket], model_.compute);
  status.Update(device_.WaitFor(leaving_, filled_[bucket]));
  status.Update(device_.Copy(host_.gradients.data() + range.begin,
                             model_.gradients.data() + range.begin,
                             range.size() * static_cast<int64_t>(sizeof(float)),
                             leaving_));
  status.Update(device_.Record(left_[bucket], leaving_));
  if (!status.ok()) return status;
  last_ = runner_->Post(
      [this, bucket, step = step()] { return HandOver(bucket, step); });
  return absl::OkStatus();
}

absl::Status StagedExchange::HandOver(int bucket, int64_t step) {
  TimelineSpan leaving(track_, "leave", {.step = step, .bucket = bucket});
  const absl::Status status =
      Await(device_, left_[bucket], Now() + timeout_, cancellation_);
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("gradients of bucket ", bucket, " on GPU ",
                                     device_.info().index, ": ",
                                     std::string(status.message())));
  }
  leaving.End();
  return inner().Submit(bucket);
}

absl::Status StagedExchange::Finish(Time deadline) {
  if (absl::Status s = runner_->Await(last_); !s.ok()) return s;
  if (absl::Status s = inner().Finish(deadline); !s.ok()) return s;
  return FinishReturn();
}

// The bucket's gradients are in host memory. So the compute stream has done
// what made them, which is all that reads these parameters in backward.
absl::Status StagedExchange::ReturnBucket(int bucket) {
  ++num_returned_;
  return Return(host_.layout.bucket(bucket));
}

absl::Status StagedExchange::Return(Range range) {
  return device_.Copy(model_.parameters.data() + range.begin,
                      host_.parameters.data() + range.begin,
                      range.size() * static_cast<int64_t>(sizeof(float)),
                      returning_);
}

// The host's copy is overwritten only after the next step's gradients have
// left, which the compute stream makes behind this: nobody has to wait here.
absl::Status StagedExchange::FinishReturn() {
  absl::Status status = std::exchange(failure_, absl::OkStatus());
  if (std::exchange(num_returned_, 0) < host_.layout.num_buckets()) {
    // Behind all that the compute stream has got, which may read them.
    status.Update(device_.Record(backward_done_, model_.compute));
    status.Update(device_.WaitFor(returning_, backward_done_));
    status.Update(Return({0, host_.layout.num_elements()}));
  }
  status.Update(device_.Record(returned_, returning_));
  status.Update(device_.WaitFor(model_.compute, returned_));
  return status;
}

absl::Status StagedExchange::Synchronise(Before next, Time deadline) {
  if (absl::Status s = inner().Synchronise(next, deadline); !s.ok()) return s;
  return FinishReturn();
}

}  // namespace psring
