#include "ring/message_ring.h"

#include <utility>

#include "common/clock.h"

namespace psring {

MessageRing::MessageRing(std::unique_ptr<HostRanks> hosts, RankModel model,
                         std::optional<GradientCodec> codec,
                         std::unique_ptr<RingListener> listener,
                         const Options& options)
    : hosts_(std::move(hosts)),
      codec_(std::move(codec)),
      options_(options),
      model_(std::move(model)),
      step_(model_.first_step()),
      listener_(std::move(listener)) {}

absl::Status MessageRing::Join(std::vector<FlatBuffer> slots,
                               ParametersArrived arrived, Time deadline) {
  if (absl::Status s = model_.TakeSlots(std::move(slots)); !s.ok()) return s;
  return listener_->runner().Run(
      [&] { return model_.Broadcast(listener_->communicator(), deadline); });
}

absl::Status MessageRing::Submit(int bucket) {
  const int64_t task = listener_->runner().Post(
      [this, bucket, step = step_] { return Reduce(bucket, step); });
  submitted_.push_back({bucket, task});
  return absl::OkStatus();
}

absl::Status MessageRing::Reduce(int bucket, int64_t step) {
  const absl::Span<float> gradients = model_.bucket(bucket).gradients;
  TimelineSpan span(
      options_.track, "reduce",
      {.step = step,
       .bytes = static_cast<int64_t>(gradients.size() * sizeof(float)),
       .bucket = bucket});
  TcpCommunicator& c = listener_->communicator();
  const float scale = 1.0f / static_cast<float>(c.size());
  const Time deadline = Now() + options_.step_timeout;
  const absl::Status status =
      codec_.has_value()
          ? c.AllReduceEncoded(*codec_, model_.layout().bucket(bucket).begin,
                               gradients, scale, deadline)
          : c.AllReduce(gradients, scale, deadline);
  return status.ok() ? status : AtBucket(step, bucket, status);
}

absl::Status MessageRing::Finish(Time deadline) {
  for (const auto& [bucket, task] : submitted_) {
    if (absl::Status s = listener_->runner().Await(task); !s.ok()) return s;
    TimelineSpan span(options_.trainer_track, "update",
                      {.step = step_, .bucket = bucket});
    model_.Update(model_.bucket(bucket), step_);
  }
  submitted_.clear();
  ++step_;
  return absl::OkStatus();
}

absl::Status MessageRing::Synchronise(Time deadline) {
  return listener_->runner().Run(
      [&] { return listener_->communicator().Barrier(deadline); });
}

absl::Status MessageRing::AllReduce(absl::Span<float> data, float scale,
                                    Time deadline) {
  return listener_->runner().Run([&] {
    return listener_->communicator().AllReduce(data, scale, deadline);
  });
}

absl::StatusOr<proto::SavedState> MessageRing::SaveState(
    const std::string& directory, Time deadline) {
  return model_.Save(directory);
}

}  // namespace psring
