// What a worker of a ring trains: its model, the optimizer that it applies to
// it, and the optimizer's state, of which each rank keeps the part of what it
// updates (ZeRO stage 1, Rajbhandari et al. 2020). Every rank begins with rank
// 0's.
#ifndef PSRING_RING_RANK_MODEL_H_
#define PSRING_RING_RANK_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/model/flat_model.h"
#include "common/model/layout.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "protos/cluster.pb.h"
#include "ring/communicator.h"
#include "ring/routes.h"

namespace psring {

// Elements that a rank which only sends may have queued (64 MiB): between two
// barriers no more is handed round.
inline constexpr int64_t kMostQueued = 16 << 20;

// Owned by an exchange. It has no lock: the exchange says which thread uses
// which of its buckets, and when.
class RankModel {
 public:
  // `flat` outlives it. Errors: an optimizer that cannot be made, an arena
  // without room for its state.
  static absl::StatusOr<RankModel> Create(const proto::Welcome& job,
                                          FlatModel& flat);

  const Layout& layout() const { return flat_.layout; }
  const Optimizer& optimizer() const { return optimizer_; }
  // The number of the exchange's first step.
  int64_t first_step() const { return first_step_; }
  // The learning rates of its groups: the worker's own where it has them.
  using Rates = absl::InlinedVector<double, 4>;
  Rates RatesAt(int64_t step) const;
  // The number of the update that this step makes, from 1.
  int64_t UpdateAt(int64_t step) const { return plan_.UpdatesAt(step) + 1; }

  // The optimizer's state: on rank 0 what is handed in, one buffer a slot;
  // elsewhere, and where nothing is, zeros. In the arena, if the model has one.
  // `owned`: who updates what, all of the model, the same on every rank. Once.
  // RESOURCE_EXHAUSTED: no memory.
  absl::Status TakeSlots(std::vector<FlatBuffer> slots,
                         std::vector<OwnedSlice> owned);

  // All ranks call it: everybody's parameters become rank 0's, a part at a
  // time, each of which moves the deadline on. True: rank 0 was handed state,
  // and the owners have to get theirs from it.
  absl::StatusOr<bool> Broadcast(Communicator& c, Time deadline);

  const std::vector<OwnedSlice>& owned() const { return owned_; }
  // Memory for all of the state, where that may be missing later.
  absl::Status ReserveSlots();
  // Gives back the memory of state that is not this rank's.
  void ReleaseOthersSlots();

  // Where a bucket lies; after TakeSlots.
  struct Bucket {
    Range range;
    absl::Span<float> gradients;
    float* parameters = nullptr;
    std::vector<float*> slots;
  };
  const Bucket& bucket(int b) const { return buckets_[b]; }
  // FlatBuffer::memory of all gradients.
  const std::shared_ptr<const void>& gradient_memory() const {
    return flat_.gradients.memory();
  }
  // The whole model's.
  FlatBuffer& slot(int i) { return slots_[i]; }
  int num_slots() const { return static_cast<int>(slots_.size()); }

  // Applies the mean of all ranks' gradients of `step` to a range of the
  // bucket, whose elements count from the bucket's first. `mean`: of the range,
  // floats on any address.
  void Update(const Bucket& bucket, Range range, const void* mean,
              int64_t step) const;

  // As GradientExchange::SaveState and FetchSlots; the state of all owners is
  // here.
  absl::StatusOr<proto::SavedState> Save(const std::string& directory) const;
  void FetchSlots(absl::Span<float* const> slots) const {
    CopyAll(slots_, slots);
  }

 private:
  RankModel(FlatModel& flat, int rank, int64_t first_step, JobPlan plan,
            Optimizer optimizer)
      : flat_(flat),
        rank_(rank),
        first_step_(first_step),
        plan_(std::move(plan)),
        optimizer_(std::move(optimizer)) {}

  bool IsOwn(const OwnedSlice& slice) const {
    return slice.owner == rank_ || slice.owner == OwnedSlice::kEveryRank;
  }
  absl::Status Reserve(Range range);
  void FindBuckets();

  FlatModel& flat_;
  int rank_;
  int64_t first_step_;
  JobPlan plan_;
  Optimizer optimizer_;
  bool handed_state_ = false;
  std::vector<OwnedSlice> owned_;
  std::vector<FlatBuffer> slots_;
  std::vector<Bucket> buckets_;
};

}  // namespace psring

#endif  // PSRING_RING_RANK_MODEL_H_
