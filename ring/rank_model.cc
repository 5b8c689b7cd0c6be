#include "ring/rank_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
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
  return RankModel(flat, FirstExchange(job.spec()), std::move(plan),
                   *std::move(optimizer));
}

absl::Status RankModel::TakeSlots(std::vector<FlatBuffer> slots) {
  for (int i = 0; i < optimizer_.num_slots(); ++i) {
    const bool given = i < static_cast<int>(slots.size());
    if (flat_.arena != nullptr) {
      slots_.push_back(FlatBuffer::Borrow(flat_.arena->slot(i),
                                          flat_.layout.num_elements()));
      if (given) {
        std::copy_n(slots[i].data(), slots[i].size(), slots_[i].data());
      }
    } else if (given) {
      slots_.push_back(std::move(slots[i]));
    } else {
      auto slot = FlatBuffer::Create(flat_.layout.num_elements());
      if (!slot.ok()) return slot.status();
      slots_.push_back(*std::move(slot));
    }
  }
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
  return absl::OkStatus();
}

absl::Status RankModel::Broadcast(Communicator& c, Time deadline) {
  absl::Status status = c.Broadcast(flat_.parameters.span(), 0, deadline);
  for (FlatBuffer& slot : slots_) {
    if (!status.ok()) return status;
    status = c.Broadcast(slot.span(), 0, deadline);
  }
  return status;
}

RankModel::Rates RankModel::RatesAt(int64_t step) const {
  if (flat_.rates.empty()) return {plan_.RateAt(step)};
  return {flat_.rates.begin(), flat_.rates.end()};
}

void RankModel::Update(const Bucket& bucket, int64_t step) const {
  optimizer_.Update(UpdateAt(step), RatesAt(step), bucket.gradients.data(),
                    bucket.parameters, bucket.slots, bucket.range);
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
