// The flat allocations that everything else points into.
#ifndef PSRING_COMMON_MODEL_FLAT_MODEL_H_
#define PSRING_COMMON_MODEL_FLAT_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "common/model/worker_arena.h"

namespace psring {

// Zeroed float32 memory in pages of its own, which the system gives when they
// are first used. Movable; the address never changes.
class FlatBuffer {
 public:
  // RESOURCE_EXHAUSTED, with the size, when there is no memory.
  static absl::StatusOr<FlatBuffer> Create(int64_t num_elements);
  // Memory of somebody else: `memory` keeps it, or they outlive the buffer.
  static FlatBuffer Borrow(float* data, int64_t num_elements,
                           std::shared_ptr<const void> memory = nullptr);

  FlatBuffer() = default;
  FlatBuffer(FlatBuffer&& other) noexcept { *this = std::move(other); }
  FlatBuffer& operator=(FlatBuffer&& other) noexcept;

  float* data() { return data_; }
  const float* data() const { return data_; }
  int64_t size() const { return size_; }
  absl::Span<float> span() { return {data_, static_cast<size_t>(size_)}; }

  // Keeps it where it is for whoever reads it once the buffer is gone, as
  // ZeroMQ may; null: somebody else does.
  const std::shared_ptr<const void>& memory() const { return memory_; }

  // Gives whole pages of `range` back to the system. They are zeros from then
  // on, also for those who share them.
  void Release(Range range);

 private:
  float* data_ = nullptr;
  int64_t size_ = 0;
  bool owned_ = false;
  std::shared_ptr<const void> memory_;
};

// Copies each of them to where `to` says.
void CopyAll(absl::Span<const FlatBuffer> from, absl::Span<float* const> to);

// Where a worker's model lies: in memory of its own, or in an arena that the
// processes of its host can map.
enum class SameHost { kOff, kAuto };

// A worker's parameters and gradients. Owned by the trainer's thread, which
// lends the gradients of submitted buckets to the exchange until Finish.
struct FlatModel {
  // `num_slots`: of the optimizer's state, which the arena has room for.
  static absl::StatusOr<FlatModel> Create(Layout layout,
                                          SameHost same_host = SameHost::kOff,
                                          int num_slots = 0);

  Layout layout;
  std::shared_ptr<WorkerArena> arena;  // of both; null with kOff
  FlatBuffer parameters;
  FlatBuffer gradients;
  // Where the job takes rates from its workers (common/optim/rates.h): the
  // trainer's until it submits.
  std::vector<double> rates = {};
};

}  // namespace psring

#endif  // PSRING_COMMON_MODEL_FLAT_MODEL_H_
