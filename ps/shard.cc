#include "ps/shard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/optim/delay_compensation.h"
#include "common/state/state_files.h"

namespace psring {

absl::StatusOr<Shard> Shard::Create(Ranges ranges, Optimizer optimizer,
                                    int num_snapshots) {
  Shard shard(std::move(optimizer));
  for (const Range& range : ranges) {
    shard.places_.push_back(shard.size_);
    shard.size_ += range.size();
  }
  shard.ranges_ = std::move(ranges);
  auto parameters = FlatBuffer::Create(shard.size_);
  if (!parameters.ok()) return parameters.status();
  shard.parameters_ = *std::move(parameters);
  for (int i = 0; i < shard.num_slots(); ++i) {
    auto slot = FlatBuffer::Create(shard.size_);
    if (!slot.ok()) return slot.status();
    shard.slots_.push_back(*std::move(slot));
  }
  auto snapshots = FlatBuffer::Create(num_snapshots * shard.size_);
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

int64_t Shard::PlaceOf(int64_t begin) const {
  const auto behind = std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                       [](int64_t element, const Range& range) {
                                         return element < range.begin;
                                       });
  const size_t i = behind - ranges_.begin() - 1;
  return places_[i] + begin - ranges_[i].begin;
}

void Shard::Set(int slot, Range range, const void* values) {
  FlatBuffer& buffer = slot == 0 ? parameters_ : slots_[slot - 1];
  std::memcpy(buffer.data() + PlaceOf(range.begin), values,
              range.size() * sizeof(float));
}

absl::InlinedVector<float*, 16> Shard::SlotsAt(int64_t begin) {
  absl::InlinedVector<float*, 16> slots;
  for (FlatBuffer& slot : slots_) {
    slots.push_back(slot.data() + PlaceOf(begin));
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
  std::vector<StateRange> state;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    StateRange& range = state.emplace_back();
    range.range = ranges_[i];
    range.parameters = parameters_.data() + places_[i];
    for (const FlatBuffer& slot : slots_) {
      range.slots.push_back(slot.data() + places_[i]);
    }
  }
  return WriteStateRanges(directory, layout, optimizer_.slot_names(), state);
}

}  // namespace psring
