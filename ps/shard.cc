#include "ps/shard.h"

#include <cstring>
#include <utility>

#include "common/model/fused_update.h"
#include "common/model/state_files.h"

namespace psring {

absl::StatusOr<Shard> Shard::Create(Range range, Optimizer optimizer) {
  Shard shard(std::move(optimizer));
  shard.range_ = range;
  auto parameters = FlatBuffer::Create(range.size());
  if (!parameters.ok()) return parameters.status();
  shard.parameters_ = *std::move(parameters);
  for (int i = 0; i < shard.num_slots(); ++i) {
    auto slot = FlatBuffer::Create(range.size());
    if (!slot.ok()) return slot.status();
    shard.slots_.push_back(*std::move(slot));
  }
  return shard;
}

void Shard::Set(int slot, Range range, const void* values) {
  FlatBuffer& buffer = slot == 0 ? parameters_ : slots_[slot - 1];
  std::memcpy(buffer.data() + (range.begin - range_.begin), values,
              range.size() * sizeof(float));
}

std::vector<float*> Shard::SlotsAt(int64_t begin) {
  std::vector<float*> slots;
  for (FlatBuffer& slot : slots_) {
    slots.push_back(slot.data() + (begin - range_.begin));
  }
  return slots;
}

void Shard::ApplySum(Range bucket, Range range,
                     absl::Span<const void* const> gradients, float scale,
                     int64_t update, double lr,
                     absl::Span<float* const> copies) {
  SumAndUpdate(optimizer_, bucket, range, gradients, scale, update, lr,
               parameters_.data() + (range.begin - range_.begin),
               SlotsAt(range.begin), copies);
}

void Shard::Apply(Range range, const void* gradient, int64_t update,
                  double lr) {
  optimizer_.Update(update, lr, gradient,
                    parameters_.data() + (range.begin - range_.begin),
                    SlotsAt(range.begin), range.size());
}

absl::Status Shard::Save(const std::string& directory,
                         const Layout& layout) const {
  std::vector<const float*> slots;
  for (const FlatBuffer& slot : slots_) slots.push_back(slot.data());
  return WriteStateRange(directory, layout, optimizer_.slot_names(), range_,
                         parameters_.data(), slots);
}

}  // namespace psring
