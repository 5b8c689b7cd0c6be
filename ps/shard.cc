#include "ps/shard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "common/model/reduce.h"
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

// Sum, update and copies go tile by tile, so that what one leaves is still in
// the cache when the next reads it: one pass over the gradients and the state.
void Shard::ApplySum(Range bucket, Range range,
                     absl::Span<const void* const> gradients, float scale,
                     int64_t update, double lr,
                     absl::Span<float* const> copies) {
  constexpr int64_t kTile = 4096;
  alignas(64) std::array<float, kTile> sum;
  absl::InlinedVector<const void*, 16> tile_gradients(gradients.size());
  std::vector<float*> slots = SlotsAt(range.begin);
  float* parameters = parameters_.data() + (range.begin - range_.begin);
  for (int64_t done = 0; done < range.size(); done += kTile) {
    const Range tile{range.begin + done,
                     std::min(range.begin + done + kTile, range.end)};
    for (size_t i = 0; i < gradients.size(); ++i) {
      tile_gradients[i] =
          static_cast<const char*>(gradients[i]) + done * sizeof(float);
    }
    CanonicalSum(bucket, tile, tile_gradients, scale, sum.data());
    optimizer_.Update(update, lr, sum.data(), parameters + done, slots,
                      tile.size());
    for (float*& slot : slots) slot += tile.size();
    for (float* copy : copies) {
      std::memcpy(copy + done, parameters + done, tile.size() * sizeof(float));
    }
  }
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
