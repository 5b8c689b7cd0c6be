#include "common/exchange/compressed_exchange.h"

namespace psring {

absl::StatusOr<std::unique_ptr<CompressedExchange>> CompressedExchange::Create(
    std::unique_ptr<GradientExchange> exchange, GradientCodec codec,
    FlatModel& model, Track* track) {
  auto residual = FlatBuffer::Create(model.layout.num_elements());
  if (!residual.ok()) return residual.status();
  std::unique_ptr<CompressedExchange> compressed(
      new CompressedExchange(std::move(exchange), std::move(codec),
                             *std::move(residual), model, track));
  return compressed;
}

absl::Status CompressedExchange::Submit(int bucket) {
  const Range range = model_.layout.bucket(bucket);
  TimelineSpan span(
      track_, "encode",
      {.step = step(),
       .bytes = range.size() * static_cast<int64_t>(sizeof(float)),
       .bucket = bucket});
  codec_.Quantise(range, model_.gradients.data() + range.begin,
                  residual_.data() + range.begin);
  span.End();
  return inner().Submit(bucket);
}

}  // namespace psring
