#include "ring/shared_ring.h"

#include <algorithm>
#include <utility>

#include "common/clock.h"
#include "common/model/layout.h"

namespace psring {

SharedRing::SharedRing(std::unique_ptr<HostRanks> hosts, RankModel model,
                       const Options& options)
    : hosts_(std::move(hosts)),
      options_(options),
      step_(model.first_step()),
      model_(std::move(model)),
      communicator_(hosts_->MakeGroup(options.track), options.threads),
      runner_(options.where) {}

absl::Status SharedRing::Join(std::vector<FlatBuffer> slots,
                              ParametersArrived arrived, Time deadline) {
  return runner_.Run([&] { return JoinRanks(std::move(slots), deadline); });
}

// ReduceAndUpdate cuts buckets like this.
std::vector<OwnedSlice> SharedRing::SlicesOfRanks() const {
  std::vector<OwnedSlice> slices;
  for (int b = 0; b < model_.layout().num_buckets(); ++b) {
    for (int r = 0; r < hosts_->size(); ++r) {
      slices.push_back(
          {NearEqualPart(model_.layout().bucket(b), hosts_->size(), r), r});
    }
  }
  return slices;
}

absl::Status SharedRing::JoinRanks(std::vector<FlatBuffer> slots,
                                   Time deadline) {
  if (absl::Status s = model_.TakeSlots(std::move(slots), SlicesOfRanks());
      !s.ok()) {
    return s;
  }
  const auto handed = model_.Broadcast(communicator_, deadline);
  if (!handed.ok() || !*handed) return handed.status();
  for (const OwnedSlice& slice : model_.owned()) {
    if (slice.owner == hosts_->rank()) CopySlots(slice, 0);
  }
  // Ranks copy at their own speed: the time for the rest has passed meanwhile.
  if (absl::Status s = communicator_.Barrier(
          std::max(deadline, Now() + options_.step_timeout));
      !s.ok()) {
    return s;
  }
  model_.ReleaseOthersSlots();
  return absl::OkStatus();
}

absl::Status SharedRing::Submit(int bucket) {
  last_task_ = runner_.Post(
      [this, bucket, step = step_] { return Reduce(bucket, step); });
  return absl::OkStatus();
}

absl::Status SharedRing::Reduce(int bucket, int64_t step) {
  const auto& [range, gradients, parameters, slots] = model_.bucket(bucket);
  TimelineSpan span(
      options_.track, "reduce",
      {.step = step,
       .bytes = static_cast<int64_t>(gradients.size() * sizeof(float)),
       .bucket = bucket});
  const absl::Status status = communicator_.ReduceAndUpdate(
      gradients, 1.0f / static_cast<float>(communicator_.size()),
      model_.optimizer(), model_.UpdateAt(step), model_.RatesAt(step),
      parameters, slots, range.begin, Now() + options_.step_timeout);
  return status.ok() ? status : AtBucket(step, bucket, status);
}

absl::Status SharedRing::Finish(Time deadline) {
  if (absl::Status s = runner_.Await(last_task_); !s.ok()) return s;
  ++step_;
  return absl::OkStatus();
}

absl::Status SharedRing::Synchronise(Before next, Time deadline) {
  return runner_.Run([&] { return communicator_.Barrier(deadline); });
}

absl::Status SharedRing::AllReduce(absl::Span<float> data, float scale,
                                   Time deadline) {
  return runner_.Run(
      [&] { return communicator_.AllReduce(data, scale, deadline); });
}

absl::StatusOr<proto::SavedState> SharedRing::SaveState(
    const std::string& directory, Time deadline) {
  if (absl::Status s = model_.ReserveSlots(); !s.ok()) return s;
  // Between steps: nobody changes its state before all, this rank among them,
  // have entered the next one.
  for (const OwnedSlice& slice : model_.owned()) CopySlots(slice, slice.owner);
  auto saved = model_.Save(directory);
  model_.ReleaseOthersSlots();
  return saved;
}

absl::Status SharedRing::FetchSlots(absl::Span<float* const> slots,
                                    Time deadline) {
  for (const auto& [range, owner] : model_.owned()) {
    for (size_t i = 0; i < slots.size(); ++i) {
      std::copy_n(hosts_->arena(owner)->slot(static_cast<int>(i)) + range.begin,
                  range.size(), slots[i] + range.begin);
    }
  }
  return absl::OkStatus();
}

void SharedRing::CopySlots(const OwnedSlice& slice, int rank) {
  if (rank == hosts_->rank()) return;
  for (int i = 0; i < model_.num_slots(); ++i) {
    std::copy_n(hosts_->arena(rank)->slot(i) + slice.range.begin,
                slice.range.size(), model_.slot(i).data() + slice.range.begin);
  }
}

}  // namespace psring
