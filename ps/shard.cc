#include "ps/shard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/optim/delay_compensation.h"
#include "common/state/state_files.h"

namespace psring {

absl::StatusOr<Shard> Shard::Create(Range range, Optimizer optimizer,
                                    int num_snapshots) {
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
  auto snapshots = FlatBuffer::Create(num_snapshots * range.size());
  if (!snapshots.ok()) {
    return absl::Status(
        snapshots.status().code(),
        absl::StrCat(std::string(snapshots.status().message()),
                     ": --delay-compensation keeps a copy of a server's part "
                     "of the parameters for each of ",
                     num_snapshots, " workers. More servers share it"));
  }
  shard.snapshots_ = *std::move(snapshots);
  return shard;
}

void Shard::Set(int slot, Range range, const void* values) {
  FlatBuffer& buffer = slot == 0 ? parameters_ : slots_[slot - 1];
  std::memcpy(buffer.data() + (range.begin - range_.begin), values,
              range.size() * sizeof(float));
}

absl::InlinedVector<float*, 16> Shard::SlotsAt(int64_t begin) {
  absl::InlinedVector<float*, 16> slots;
  for (FlatBuffer& slot : slots_) {
    slots.push_back(slot.data() + (begin - range_.begin));
  }
  return slots;
}

void Shard::Apply(Range range, const void* gradient, int64_t update,
                  absl::Span<const double> rates) {
  optimizer_.Update(update, rates, gradient, parameters(range.begin),
                    SlotsAt(range.begin), range);
}

void Shard::TakeSnapshot(int snapshot, Range range) {
  std::memcpy(SnapshotAt(snapshot, range.begin), parameters(range.begin),
              range.size() * sizeof(float));
}

// Tile by tile, so that the compensated gradient stays in the cache.
void Shard::ApplyCompensated(Range range, const void* gradient, int snapshot,
                             float lambda, int64_t update,
                             absl::Span<const double> rates) {
  constexpr int64_t kTile = 4096;
  alignas(64) std::array<float, kTile> compensated;
  for (int64_t begin = range.begin; begin < range.end; begin += kTile) {
    const Range tile{begin, std::min(begin + kTile, range.end)};
    CompensateDelay(lambda,
                    static_cast<const char*>(gradient) +
                        (begin - range.begin) * sizeof(float),
                    parameters(begin), SnapshotAt(snapshot, begin),
                    compensated.data(), tile.size());
    Apply(tile, compensated.data(), update, rates);
  }
}

absl::StatusOr<proto::SavedState> Shard::Save(const std::string& directory,
                                              const Layout& layout) const {
  std::vector<const float*> slots;
  for (const FlatBuffer& slot : slots_) slots.push_back(slot.data());
  return WriteStateRange(directory, layout, optimizer_.slot_names(), range_,
                         parameters_.data(), slots);
}

}  // namespace psring
