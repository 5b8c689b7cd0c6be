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

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/exchange/forwarding_exchange.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"

namespace psring {

class CompressedExchange : public ForwardingExchange {
 public:
  // `codec` is the job's. `model` is the exchange's, and outlives this.
  // `track`: of the thread that submits, or null. RESOURCE_EXHAUSTED as
  // FlatBuffer's.
  static absl::StatusOr<std::unique_ptr<CompressedExchange>> Create(
      std::unique_ptr<GradientExchange> exchange, GradientCodec codec,
      FlatModel& model, Track* track = nullptr);

  // Changes the bucket's gradients.
  absl::Status Submit(int bucket) override;

 private:
  CompressedExchange(std::unique_ptr<GradientExchange> exchange,
                     GradientCodec codec, FlatBuffer residual, FlatModel& model,
                     Track* track)
      : ForwardingExchange(std::move(exchange)),
        codec_(std::move(codec)),
        residual_(std::move(residual)),
        model_(model),
        track_(track) {}

  const GradientCodec codec_;
  FlatBuffer residual_;
  FlatModel& model_;
  Track* const track_;
};

}  // namespace psring

#endif  // PSRING_COMMON_EXCHANGE_COMPRESSED_EXCHANGE_H_
