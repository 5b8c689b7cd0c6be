// Ranges of the flat model with their optimizer state. No socket, no lock: one
// thread's own.
#ifndef PSRING_PS_SHARD_H_
#define PSRING_PS_SHARD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/flat_model.h"
#include "common/model/layout.h"
#include "common/model/shard_cut.h"
#include "common/optim/optimizer.h"

namespace psring {

class Shard {
 public:
  // Zeroed. RESOURCE_EXHAUSTED names the bytes that were asked for.
  // `num_snapshots` copies of the parameters, for ApplyCompensated, are
  // allocated with it.
  static absl::StatusOr<Shard> Create(Ranges ranges, Optimizer optimizer,
                                      int num_snapshots = 0);

  const Ranges& ranges() const { return ranges_; }
  int num_slots() const { return optimizer_.num_slots(); }

  const Optimizer& optimizer() const { return optimizer_; }

  // The parameters and each slot of the optimizer's state, from flat element
  // `begin` on to the end of its range; they stay where they are. A `range`
  // below lies within one of the shard's.
  const float* parameters(int64_t begin) const {
    return parameters_.data() + PlaceOf(begin);
  }
  float* parameters(int64_t begin) {
    return parameters_.data() + PlaceOf(begin);
  }
  // FlatBuffer::memory of the parameters.
  const std::shared_ptr<const void>& memory() const {
    return parameters_.memory();
  }
  absl::InlinedVector<float*, 16> SlotsAt(int64_t begin);

  // Sets the parameters (slot 0) or the optimizer's slot-th state, from bytes
  // of any alignment.
  void Set(int slot, Range range, const void* values);

  // One update of `range` with one worker's gradient. `update` counts from 1;
  // see Optimizer.
  void Apply(Range range, const void* gradient, int64_t update,
             absl::Span<const double> rates);

  // The same with a gradient that was computed on snapshot `snapshot`, the
  // parameters of `range` as they were at its last TakeSnapshot; see
  // CompensateDelay.
  void ApplyCompensated(Range range, const void* gradient, int snapshot,
                        float lambda, int64_t update,
                        absl::Span<const double> rates);
  void TakeSnapshot(int snapshot, Range range);

  // Writes its ranges into a checkpoint's files (state_files.h).
  absl::StatusOr<proto::SavedState> Save(const std::string& directory,
                                         const Layout& layout) const;

 private:
  explicit Shard(Optimizer optimizer) : optimizer_(std::move(optimizer)) {}
  // Where the flat element `begin` lies in each buffer.
  int64_t PlaceOf(int64_t begin) const;
  float* SnapshotAt(int snapshot, int64_t begin) {
    return snapshots_.data() + snapshot * size_ + PlaceOf(begin);
  }

  Ranges ranges_;
  std::vector<int64_t> places_;  // of their first elements
  int64_t size_ = 0;             // of all
  Optimizer optimizer_;
  FlatBuffer parameters_;
  std::vector<FlatBuffer> slots_;
  FlatBuffer snapshots_;  // one after the other
};

}  // namespace psring

#endif  // PSRING_PS_SHARD_H_
