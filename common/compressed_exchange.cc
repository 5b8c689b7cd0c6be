#include "common/compressed_exchange.h"

namespace psring {

absl::StatusOr<std::unique_ptr<CompressedExchange>> CompressedExchange::Create(
    std::unique_ptr<GradientExchange> exchange, const Compression& compression,
    FlatModel& model) {
  auto residual = FlatBuffer::Create(model.layout.num_elements());
  if (!residual.ok()) return residual.status();
  std::unique_ptr<CompressedExchange> compressed(new CompressedExchange(
      std::move(exchange), GradientCodec(compression, model.layout),
      *std::move(residual), model));
  return compressed;
}

absl::Status CompressedExchange::Submit(int bucket) {
  const Range range = model_.layout.bucket(bucket);
  codec_.Quantise(range, model_.gradients.data() + range.begin,
                  residual_.data() + range.begin);
  return exchange_->Submit(bucket);
}

}  // namespace psring
