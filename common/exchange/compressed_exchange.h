// Rounds gradients to what --compress represents before they are submitted:
// the one rounding point of common/optim/compression.h, for every topology and
// transport. Wraps an exchange of the same job, whose messages carry these
// values encoded.
//
// What is lost stays at the worker and joins the next step's gradients:
// float32, as large as the model, in no checkpoint. A run that resumes begins
// without.
#ifndef PSRING_COMMON_EXCHANGE_COMPRESSED_EXCHANGE_H_
#define PSRING_COMMON_EXCHANGE_COMPRESSED_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/exchange/gradient_exchange.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"

namespace psring {

class CompressedExchange : public GradientExchange {
 public:
  // `compression` is the job's, and not none. `model` is the exchange's, and
  // outlives this. `track`: the trainer's, or null. RESOURCE_EXHAUSTED as
  // FlatBuffer's.
  static absl::StatusOr<std::unique_ptr<CompressedExchange>> Create(
      std::unique_ptr<GradientExchange> exchange,
      const Compression& compression, FlatModel& model, Track* track = nullptr);

  absl::Status Join(std::vector<FlatBuffer> slots,
                    absl::Time deadline) override {
    return exchange_->Join(std::move(slots), deadline);
  }
  // Changes the bucket's gradients.
  absl::Status Submit(int bucket) override;
  absl::Status Finish(absl::Time deadline) override {
    return exchange_->Finish(deadline);
  }
  int64_t step() const override { return exchange_->step(); }
  absl::Status Synchronise(absl::Time deadline) override {
    return exchange_->Synchronise(deadline);
  }
  absl::Status SumOverWorkers(absl::Span<double> values,
                              absl::Time deadline) override {
    return exchange_->SumOverWorkers(values, deadline);
  }
  absl::Status SaveState(const std::string& directory,
                         absl::Time deadline) override {
    return exchange_->SaveState(directory, deadline);
  }
  absl::Status CheckSaveDirectory(const std::string& directory,
                                  absl::Time deadline) override {
    return exchange_->CheckSaveDirectory(directory, deadline);
  }
  void OnParameters(std::function<void(Range)> arrived) override {
    exchange_->OnParameters(std::move(arrived));
  }
  int64_t bytes_sent() const override { return exchange_->bytes_sent(); }
  int64_t bytes_received() const override {
    return exchange_->bytes_received();
  }
  int64_t gradient_bytes_sent() const override {
    return exchange_->gradient_bytes_sent();
  }

 private:
  CompressedExchange(std::unique_ptr<GradientExchange> exchange,
                     GradientCodec codec, FlatBuffer residual, FlatModel& model,
                     Track* track)
      : exchange_(std::move(exchange)),
        codec_(std::move(codec)),
        residual_(std::move(residual)),
        model_(model),
        track_(track) {}

  const std::unique_ptr<GradientExchange> exchange_;
  const GradientCodec codec_;
  FlatBuffer residual_;
  FlatModel& model_;
  Track* const track_;
};

}  // namespace psring

#endif  // PSRING_COMMON_EXCHANGE_COMPRESSED_EXCHANGE_H_
