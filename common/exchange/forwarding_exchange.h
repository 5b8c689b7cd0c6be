// What wraps an exchange and changes only some of its calls.
#ifndef PSRING_COMMON_EXCHANGE_FORWARDING_EXCHANGE_H_
#define PSRING_COMMON_EXCHANGE_FORWARDING_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"

namespace psring {

// Every call goes to the exchange inside. Threads: as for that one.
class ForwardingExchange : public GradientExchange {
 public:
  using GradientExchange::Join;
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override {
    return inner_->Join(std::move(slots), std::move(arrived), deadline);
  }
  absl::Status Submit(int bucket) override { return inner_->Submit(bucket); }
  absl::Status Finish(Time deadline) override {
    return inner_->Finish(deadline);
  }
  int64_t step() const override { return inner_->step(); }
  absl::Status Synchronise(Before next, Time deadline) override {
    return inner_->Synchronise(next, deadline);
  }
  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time deadline) override {
    return inner_->SaveState(directory, deadline);
  }
  absl::Status FetchSlots(absl::Span<float* const> slots,
                          Time deadline) override {
    return inner_->FetchSlots(slots, deadline);
  }
  absl::Status CheckSaveDirectory(const std::string& directory,
                                  Time deadline) override {
    return inner_->CheckSaveDirectory(directory, deadline);
  }
  Traffic traffic() const override { return inner_->traffic(); }

 protected:
  explicit ForwardingExchange(std::unique_ptr<GradientExchange> inner)
      : inner_(std::move(inner)) {}

  GradientExchange& inner() { return *inner_; }

 private:
  const std::unique_ptr<GradientExchange> inner_;
};

}  // namespace psring

#endif  // PSRING_COMMON_EXCHANGE_FORWARDING_EXCHANGE_H_
