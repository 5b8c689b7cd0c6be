#include "common/exchange/local_steps.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/state/state_files.h"

namespace psring {

absl::StatusOr<std::unique_ptr<OwnSteps>> HostSteps::Create(
    const proto::OptimizerSettings& optimizer, FlatModel& model) {
  auto own = Optimizer::Create(optimizer);
  if (!own.ok()) return own.status();
  return std::unique_ptr<OwnSteps>(new HostSteps(*std::move(own), model));
}

absl::Status HostSteps::SetState(std::vector<FlatBuffer> slots, Time deadline) {
  slots_ = std::move(slots);
  while (static_cast<int>(slots_.size()) < optimizer_.num_slots()) {
    auto slot = FlatBuffer::Create(model_.layout.num_elements());
    if (!slot.ok()) return slot.status();
    slots_.push_back(*std::move(slot));
  }
  return absl::OkStatus();
}

absl::Status HostSteps::Step(int64_t update, double rate) {
  std::vector<float*> slots;
  for (FlatBuffer& slot : slots_) slots.push_back(slot.data());
  optimizer_.Update(update, rate, model_.gradients.data(),
                    model_.parameters.data(), slots,
                    model_.layout.num_elements());
  return absl::OkStatus();
}

absl::Status HostSteps::OfferParameters() {
  std::copy_n(model_.parameters.data(), model_.layout.num_elements(),
              model_.gradients.data());
  return absl::OkStatus();
}

absl::StatusOr<proto::SavedState> HostSteps::Save(const std::string& directory,
                                                  Time deadline) {
  std::vector<const float*> slots;
  for (const FlatBuffer& slot : slots_) slots.push_back(slot.data());
  return WriteStateRange(directory, model_.layout, optimizer_.slot_names(),
                         {0, model_.layout.num_elements()},
                         model_.parameters.data(), slots);
}

absl::Status HostSteps::FetchSlots(absl::Span<float* const> slots,
                                   Time deadline) {
  CopyAll(slots_, slots);
  return absl::OkStatus();
}

absl::Status LocalSteps::Join(std::vector<FlatBuffer> slots,
                              ParametersArrived /*arrived: by worker*/,
                              Time deadline) {
  if (absl::Status s = own_->SetState(std::move(slots), deadline); !s.ok()) {
    return s;
  }
  return inner().Join({}, nullptr, deadline);
}

absl::Status LocalSteps::Submit(int bucket) { return absl::OkStatus(); }

absl::Status LocalSteps::Finish(Time deadline) {
  absl::Status status =
      own_->Step(plan_.UpdatesAt(step_) + 1, plan_.RateAt(step_));
  if (!status.ok()) return status;
  ++step_;
  averaged_ = false;
  return step_ % period_ == 0 ? Average(deadline) : absl::OkStatus();
}

absl::Status LocalSteps::Average(Time deadline) {
  if (averaged_) return absl::OkStatus();
  if (absl::Status s = own_->OfferParameters(); !s.ok()) return s;
  for (int bucket = 0; bucket < num_buckets_; ++bucket) {
    if (absl::Status s = inner().Submit(bucket); !s.ok()) return s;
  }
  if (absl::Status s = inner().Finish(deadline); !s.ok()) return s;
  averaged_ = true;
  return absl::OkStatus();
}

absl::Status LocalSteps::Synchronise(Before next, Time deadline) {
  if (absl::Status s = Average(deadline); !s.ok()) return s;
  return inner().Synchronise(next, deadline);
}

absl::StatusOr<proto::SavedState> LocalSteps::SaveState(
    const std::string& directory, Time deadline) {
  if (!averaged_) {
    return absl::FailedPreconditionError(
        absl::StrCat("a checkpoint of step ", step_,
                     ", between averagings: with --local-steps=", period_,
                     " every worker has parameters of its own there"));
  }
  return own_->Save(directory, deadline);
}

}  // namespace psring
