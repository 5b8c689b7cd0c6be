#include "ring/rank_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/moving_deadline.h"
#include "common/state/state_files.h"

namespace psring {
absl::StatusOr<RankModel> RankModel::Create(const proto::Welcome& job,
                                            FlatModel& flat) {
  JobPlan plan = PlanOf(job.spec(), job.workers_size());
  auto optimizer = Optimizer::ForJob(job.spec(), plan.optimizer, flat.layout);
  if (!optimizer.ok()) return optimizer.status();
  if (flat.arena != nullptr &&
      flat.arena->num_slots() < optimizer->num_slots()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an arena with room for ", flat.arena->num_slots(),
                     " optimizer slots; ", job.spec().optimizer().name(),
                     " has ", optimizer->num_slots()));
  }
  return RankModel(flat, job.rank(), FirstExchange(job.spec()), std::move(plan),
                   *std::move(optimizer));
}

absl::Status RankModel::TakeSlots(std::vector<FlatBuffer> slots,
                                  std::vector<OwnedSlice> owned) {
  owned_ = std::move(owned);
  handed_state_ = rank_ == 0 && !slots.empty();
  for (int i = 0; i < optimizer_.num_slots(); ++i) {
    if (flat_.arena != nullptr) {
      slots_.push_back(FlatBuffer::Borrow(flat_.arena->slot(i),
                                          flat_.layout.num_elements()));
    } else if (handed_state_) {
      slots_.push_back(std::move(slots[i]));
    } else {
      auto slot = FlatBuffer::Create(flat_.layout.num_elements());
      if (!slot.ok()) return slot.status();
      slots_.push_back(*std::move(slot));
    }
  }
  FindBuckets();
  if (handed_state_ && flat_.arena != nullptr) {
    absl::Status s = Reserve({0, flat_.layout.num_elements()});
    if (!s.ok()) return s;
    for (int i = 0; i < num_slots(); ++i) {
      std::copy_n(slots[i].data(), slots[i].size(), slots_[i].data());
    }
    return absl::OkStatus();
  }
  for (const OwnedSlice& slice : owned_) {
    if (!IsOwn(slice)) continue;
    if (absl::Status s = Reserve(slice.range); !s.ok()) return s;
  }
  return absl::OkStatus();
}

void RankModel::FindBuckets() {
  for (int b = 0; b < flat_.layout.num_buckets(); ++b) {
    const Range range = flat_.layout.bucket(b);
    Bucket& bucket = buckets_.emplace_back();
    bucket.range = range;
    bucket.gradients = {flat_.gradients.data() + range.begin,
                        static_cast<size_t>(range.size())};
    bucket.parameters = flat_.parameters.data() + range.begin;
    for (FlatBuffer& slot : slots_) {
      bucket.slots.push_back(slot.data() + range.begin);
    }
  }
}

absl::Status RankModel::ReserveSlots() {
  for (const OwnedSlice& slice : owned_) {  // TakeSlots has reserved its own
    if (IsOwn(slice)) continue;
    if (absl::Status s = Reserve(slice.range); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status RankModel::Reserve(Range range) {
  if (flat_.arena == nullptr) return absl::OkStatus();
  for (int i = 0; i < num_slots(); ++i) {
    if (absl::Status s = flat_.arena->ReserveSlot(i, range); !s.ok()) return s;
  }
  return absl::OkStatus();
}

void RankModel::ReleaseOthersSlots() {
  for (const OwnedSlice& slice : owned_) {
    if (IsOwn(slice)) continue;
    for (FlatBuffer& slot : slots_) slot.Release(slice.range);
  }
}

absl::StatusOr<bool> RankModel::Broadcast(Communicator& c, Time deadline) {
  MovingDeadline moving = deadline;
  const absl::Span<float> parameters = flat_.parameters.span();
  for (size_t begin = 0; begin < parameters.size(); begin += kMostQueued) {
    if (begin > 0) {
      if (absl::Status s = c.Barrier(moving.PutOff()); !s.ok()) return s;
    }
    if (absl::Status s = c.Broadcast(parameters.subspan(begin, kMostQueued), 0,
                                     moving.PutOff());
        !s.ok()) {
      return s;
    }
  }
  float handed = handed_state_ ? 1 : 0;
  if (absl::Status s = c.Broadcast({&handed, 1}, 0, moving.PutOff()); !s.ok()) {
    return s;
  }
  return handed != 0;
}

RankModel::Rates RankModel::RatesAt(int64_t step) const {
  if (flat_.rates.empty()) return {plan_.RateAt(step)};
  return {flat_.rates.begin(), flat_.rates.end()};
}

void RankModel::Update(const Bucket& bucket, Range range, const void* mean,
                       int64_t step) const {
  std::vector<float*> state;
  for (float* slot : bucket.slots) state.push_back(slot + range.begin);
  optimizer_.Update(
      UpdateAt(step), RatesAt(step), mean, bucket.parameters + range.begin,
      state,
      {bucket.range.begin + range.begin, bucket.range.begin + range.end});
}

absl::StatusOr<proto::SavedState> RankModel::Save(
    const std::string& directory) const {
  std::vector<const float*> slots;
  for (const FlatBuffer& slot : slots_) slots.push_back(slot.data());
  return WriteStateRange(directory, flat_.layout, optimizer_.slot_names(),
                         {0, flat_.layout.num_elements()},
                         flat_.parameters.data(), slots);
}

}  // namespace psring
