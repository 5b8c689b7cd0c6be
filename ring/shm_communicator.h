// All ranks on one host: collectives in one pass over shared memory.
//
// The owner of a slice (rank c owns slice c) reads it from every rank, adds in
// the canonical order and writes the result to every rank, cache line by cache
// line: each byte of input is read once and each byte of output written once,
// which is the floor of an allreduce. Two synchronisations surround it. Data
// that lies in no arena, and small data, for which the second synchronisation
// would cost more than the sum, is copied into windows of the arenas: every
// rank sums all of it, there is nothing to write back, and the windows
// alternate so that nobody waits for their readers.
#ifndef PSRING_RING_SHM_COMMUNICATOR_H_
#define PSRING_RING_SHM_COMMUNICATOR_H_

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/clock.h"
#include "common/model/layout.h"
#include "common/optim/optimizer.h"
#include "ring/communicator.h"
#include "ring/local_group.h"
#include "ring/thread_team.h"

namespace psring {

class ShmCommunicator : public Communicator {
 public:
  // `group` has every rank, by rank. `threads`: how many share this rank's
  // part of the work, the calling one included.
  ShmCommunicator(std::unique_ptr<LocalGroup> group, int threads);

  int rank() const override { return group_->self(); }
  int size() const override { return group_->size(); }
  absl::Status AllReduce(absl::Span<float> data, float scale,
                         Time deadline) override;
  absl::Status AllGather(absl::Span<float> data, Time deadline) override;
  absl::Status Broadcast(absl::Span<float> data, int root,
                         Time deadline) override;

  // One step of a bucket without a second pass: this rank sums its slice of
  // everybody's gradients, applies the optimizer to it (its state of other
  // slices falls behind) and writes the new parameters to every rank. All three
  // lie in the arena, at the same place on every rank; pointers are to the
  // bucket's first element, `origin` of the flat model. See SumAndUpdate
  // (common/optim/fused_update.h).
  absl::Status ReduceAndUpdate(absl::Span<float> gradients, float scale,
                               const Optimizer& optimizer, int64_t count,
                               absl::Span<const double> rates,
                               float* parameters,
                               absl::Span<float* const> slots, int64_t origin,
                               Time deadline);

 private:
  // Passes `data` through the windows: calls `use` with each range of it, while
  // every rank's values of that range can be read in `group_->data`.
  absl::Status Staged(absl::Span<float> data, Time deadline,
                      absl::FunctionRef<void(Range)> use);
  // Sums `range` of `whole` out of everybody's data, which begin at element
  // `base`, into `outs`, which begin at 0.
  void SumInto(Range whole, Range range, int64_t base, float scale,
               absl::Span<float* const> outs);

  std::unique_ptr<LocalGroup> group_;
  ThreadTeam team_;
};

}  // namespace psring

#endif  // PSRING_RING_SHM_COMMUNICATOR_H_
