#include "ring/message_ring.h"

#include <algorithm>
#include <utility>

#include "common/clock.h"
#include "ring/routes.h"

namespace psring {
namespace {

// A rank that only sends in a Move returns at once. It gets at most so many
// Moves ahead of the others, which drop what is more collectives ahead than
// SegmentInbox allows.
constexpr int kMovesAtOnce = 16;

}  // namespace

MessageRing::MessageRing(std::unique_ptr<HostRanks> hosts, RankModel model,
                         std::optional<GradientCodec> codec,
                         std::unique_ptr<RingListener> listener,
                         const Options& options)
    : hosts_(std::move(hosts)),
      codec_(std::move(codec)),
      options_(options),
      step_(model.first_step()),
      model_(std::move(model)),
      listener_(std::move(listener)) {}

absl::Status MessageRing::Join(std::vector<FlatBuffer> slots,
                               ParametersArrived arrived, Time deadline) {
  return listener_->runner().Run(
      [&] { return JoinRanks(std::move(slots), deadline); });
}

absl::Status MessageRing::JoinRanks(std::vector<FlatBuffer> slots,
                                    Time deadline) {
  TcpCommunicator& c = listener_->communicator();
  c.KeepMemory(model_.gradient_memory());
  std::vector<OwnedSlice> owned;
  for (int b = 0; b < model_.layout().num_buckets(); ++b) {
    const Range bucket = model_.layout().bucket(b);
    for (OwnedSlice slice : c.Owners(bucket.size(), codec_.has_value())) {
      slice.range.begin += bucket.begin;
      slice.range.end += bucket.begin;
      owned.push_back(slice);
    }
  }
  if (absl::Status s = model_.TakeSlots(std::move(slots), std::move(owned));
      !s.ok()) {
    return s;
  }
  const auto handed = model_.Broadcast(c, deadline);
  if (!handed.ok()) return handed.status();
  if (*handed) {
    if (absl::Status s = MoveSlots(Direction::kToOwners, deadline); !s.ok()) {
      return s;
    }
    model_.ReleaseOthersSlots();
  }
  // Whoever has only sent is through, while the others still receive: their
  // time for the first step would pass meanwhile.
  return c.Barrier(std::max(deadline, Now() + options_.step_timeout));
}

absl::Status MessageRing::MoveSlots(Direction direction, Time deadline) {
  TcpCommunicator& c = listener_->communicator();
  const bool to_owners = direction == Direction::kToOwners;
  int moves = kMovesAtOnce;  // since the last barrier
  int64_t elements = 0;
  const auto move = [&](int owner, absl::Span<float> state) {
    const Time latest = std::max(deadline, Now() + options_.step_timeout);
    elements += static_cast<int64_t>(state.size());
    if (moves++ == kMovesAtOnce || elements > kMostQueued) {
      moves = 1;
      elements = static_cast<int64_t>(state.size());
      if (absl::Status s = c.Barrier(latest); !s.ok()) return s;
    }
    if (owner > 0) {
      return c.Move(state, to_owners ? 0 : owner, to_owners ? owner : 0,
                    latest);
    }
    const bool to_all = owner == OwnedSlice::kEveryRank && to_owners;
    return to_all ? c.Broadcast(state, 0, latest) : absl::OkStatus();
  };
  for (const auto& [range, owner] : model_.owned()) {
    for (int i = 0; i < model_.num_slots(); ++i) {
      for (int64_t at = range.begin; at < range.end; at += kMostQueued) {
        const int64_t size = std::min<int64_t>(kMostQueued, range.end - at);
        const absl::Status s =
            move(owner, model_.slot(i).span().subspan(at, size));
        if (!s.ok()) return s;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status MessageRing::Submit(int bucket) {
  last_task_ = listener_->runner().Post(
      [this, bucket, step = step_] { return Reduce(bucket, step); });
  return absl::OkStatus();
}

absl::Status MessageRing::Reduce(int bucket_index, int64_t step) {
  const RankModel::Bucket& bucket = model_.bucket(bucket_index);
  TimelineSpan span(
      options_.track, "reduce",
      {.step = step,
       .bytes = static_cast<int64_t>(bucket.gradients.size() * sizeof(float)),
       .bucket = bucket_index});
  TcpCommunicator& c = listener_->communicator();
  const float scale = 1.0f / static_cast<float>(c.size());
  const Time deadline = Now() + options_.step_timeout;
  const auto update = [&](Range range, const void* mean) {
    model_.Update(bucket, range, mean, step);
  };
  const absl::Status status =
      codec_.has_value()
          ? c.ReduceAndUpdateEncoded(*codec_, bucket.range.begin,
                                     bucket.gradients, scale, bucket.parameters,
                                     update, deadline)
          : c.ReduceAndUpdate(bucket.gradients, scale, bucket.parameters,
                              update, deadline);
  return status.ok() ? status : AtBucket(step, bucket_index, status);
}

absl::Status MessageRing::Finish(Time deadline) {
  if (absl::Status s = listener_->runner().Await(last_task_); !s.ok()) return s;
  ++step_;
  return absl::OkStatus();
}

absl::Status MessageRing::Synchronise(Before next, Time deadline) {
  return listener_->runner().Run([&] {
    const absl::Status met = listener_->communicator().Barrier(deadline);
    if (!met.ok() || next == Before::kEvaluation) return met;
    return CollectSlots(deadline);
  });
}

// Where rank 0 has no memory for them nothing moves, and what follows says so.
absl::Status MessageRing::CollectSlots(Time deadline) {
  TcpCommunicator& c = listener_->communicator();
  collected_ = c.rank() == 0 ? model_.ReserveSlots() : absl::OkStatus();
  float room = collected_.ok() ? 1 : 0;
  if (absl::Status s = c.Broadcast({&room, 1}, 0, deadline); !s.ok()) return s;
  return room == 0 ? absl::OkStatus()
                   : MoveSlots(Direction::kToRank0, deadline);
}

absl::Status MessageRing::AllReduce(absl::Span<float> data, float scale,
                                    Time deadline) {
  return listener_->runner().Run([&] {
    return listener_->communicator().AllReduce(data, scale, deadline);
  });
}

absl::StatusOr<proto::SavedState> MessageRing::SaveState(
    const std::string& directory, Time deadline) {
  auto saved = collected_.ok() ? model_.Save(directory) : collected_;
  model_.ReleaseOthersSlots();
  return saved;
}

absl::Status MessageRing::FetchSlots(absl::Span<float* const> slots,
                                     Time deadline) {
  if (collected_.ok()) model_.FetchSlots(slots);
  model_.ReleaseOthersSlots();
  return collected_;
}

}  // namespace psring
