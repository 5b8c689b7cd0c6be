#include "gpu/staged_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace psring {
namespace {

// Of who ends the exchange, with a GPU that may hang.
constexpr absl::Duration kEndPatience = absl::Seconds(10);

}  // namespace

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
  stopping_ = true;
  runner_.reset();
  AwaitReturn().IgnoreError();
  // Copies may still be under way after a failure; nothing can be done for one
  // that never ends but to leave its memory locked.
  for (void* data : registered_) device_.UnregisterHost(data);
}

absl::Status StagedExchange::AwaitReturn() {
  if (returned_.handle == nullptr) return absl::OkStatus();  // nothing did
  absl::Status status = device_.Record(returned_, returning_);
  if (!status.ok()) return status;
  return Await(device_, returned_, Now() + kEndPatience, cancellation_);
}

absl::Status StagedExchange::Join(std::vector<FlatBuffer> slots,
                                  ParametersArrived arrived, Time deadline) {
  if (absl::Status s = FetchParameters(deadline); !s.ok()) return s;
  const auto arrived_here = [this](int bucket) {
    failure_.Update(ReturnBucket(bucket));
  };
  return EndCall(inner().Join(std::move(slots), arrived_here, deadline));
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
  if (absl::Status s = AwaitCopy(bucket); !s.ok()) {
    return absl::Status(s.code(), absl::StrCat("gradients of bucket ", bucket,
                                               " on GPU ", device_.info().index,
                                               ": ", std::string(s.message())));
  }
  leaving.End();
  const absl::Status status = inner().Submit(bucket);
  NoteTraffic();
  return status;
}

// In parts: who destroys the exchange does not wait for a GPU that hangs.
absl::Status StagedExchange::AwaitCopy(int bucket) {
  const Time deadline = Now() + timeout_;
  while (true) {
    const Time look = std::min(deadline, Now() + absl::Milliseconds(100));
    absl::Status status = Await(device_, left_[bucket], look, cancellation_);
    if (!absl::IsDeadlineExceeded(status) || look == deadline) return status;
    if (stopping_) return absl::CancelledError("the exchange ends");
  }
}

absl::Status StagedExchange::Finish(Time deadline) {
  const Time began = Now();
  if (absl::Status s = AwaitRunner(); !s.ok()) return s;
  // Nobody else is to blame for a GPU that takes long.
  deadline += Now() - began;
  return EndCall(inner().Finish(deadline));
}

absl::Status StagedExchange::EndCall(const absl::Status& status) {
  NoteTraffic();
  return status.ok() ? FinishReturn() : status;
}

void StagedExchange::NoteTraffic() {
  MutexLock lock(&mutex_);
  traffic_ = inner().traffic();
}

Traffic StagedExchange::traffic() const {
  MutexLock lock(&mutex_);
  return traffic_;
}

absl::StatusOr<proto::SavedState> StagedExchange::SaveState(
    const std::string& directory, Time deadline) {
  if (absl::Status s = AwaitRunner(); !s.ok()) return s;
  return inner().SaveState(directory, deadline);
}

absl::Status StagedExchange::FetchSlots(absl::Span<float* const> slots,
                                        Time deadline) {
  if (absl::Status s = AwaitRunner(); !s.ok()) return s;
  return inner().FetchSlots(slots, deadline);
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
  if (absl::Status s = AwaitRunner(); !s.ok()) return s;
  return EndCall(inner().Synchronise(next, deadline));
}

}  // namespace psring
