// What a worker shares with the processes of its host: its flat parameters,
// gradients and optimizer state (a ring's), and the words by which they tell
// each other what is ready.
//
// Every process derives the same offsets from the same layout; nothing that a
// peer writes is ever taken for an address or a size.
#ifndef PSRING_COMMON_MODEL_WORKER_ARENA_H_
#define PSRING_COMMON_MODEL_WORKER_ARENA_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/model/layout.h"
#include "common/net/doorbell.h"
#include "common/net/shared_counter.h"
#include "common/net/shm_arena.h"
#include "common/net/wake_count.h"
#include "protos/cluster.pb.h"

namespace psring {

// Of a collective among the workers of a host; see ring/local_group.h.
struct alignas(64) CollectiveCall {
  std::atomic<int64_t> offset;  // of its data, in elements of the arena; -1:
                                // staged
  std::atomic<int64_t> num_elements;
};

// Between this worker and a shard of a server on its host. The arena carries
// the payload when both words are 1: each has reached the other.
struct alignas(64) ShardSignals {
  std::atomic<uint32_t> attached;  // the shard's: 1, it can read this arena
  std::atomic<uint32_t> used;      // the worker's: 1, it pushes through it
  std::atomic<int64_t> answers;    // pieces answered since the start
  std::atomic<int64_t> next_step;  // the furthest that they have told
};

class WorkerArena {
 public:
  // Shards beyond them are served by messages.
  static constexpr int kMaxShards = 1024;
  // Data that lies elsewhere passes through two such windows.
  static constexpr int64_t kStagingElements = 64 * 1024;

  // This worker's. RESOURCE_EXHAUSTED as ShmArena's. Memory for slots is
  // reserved by ReserveSlot alone.
  static absl::StatusOr<std::unique_ptr<WorkerArena>> Create(
      const Layout& layout, int num_slots = 0);
  // A peer's, of the same layout and slots; UNAVAILABLE as ShmArena's, and
  // where its size is not that layout's.
  static absl::StatusOr<std::unique_ptr<WorkerArena>> Map(
      const Layout& layout, int num_slots, const proto::SharedMemory& address);

  // For the job's roster.
  proto::SharedMemory address() const;

  // Of this worker's own arena: rung by the servers of this host.
  Doorbell& doorbell() { return *doorbell_; }

  // layout.num_elements() each, page-aligned.
  float* parameters() { return At(parameters_); }
  float* gradients() { return At(gradients_); }
  // The optimizer's state, as many as Create was told.
  int num_slots() const { return num_slots_; }
  float* slot(int i) { return At(SlotBegin(i)); }
  // This worker's own arena: RESOURCE_EXHAUSTED as ShmArena's.
  absl::Status ReserveSlot(int i, Range range);

  // Elements of the arena, in which offsets of collectives count.
  float* floats() { return At(0); }
  int64_t num_floats() const {
    return arena_->size_bytes() / static_cast<int64_t>(sizeof(float));
  }
  // kStagingElements; `window` is 0 or 1.
  float* staging(int window) {
    return At(staging_ + window * kStagingElements);
  }

  SharedCounter& ready() { return block().ready; }
  SharedCounter& done() { return block().done; }
  CollectiveCall& call(int parity) { return block().calls[parity]; }
  ShardSignals& shard(int index) { return block().shards[index]; }
  // Pieces that shards have answered, all shards together; a shard adds what it
  // has answered to its own `answers` before.
  WakeCount& answers() { return block().answers; }
  // At most 2 * kMaxGroups rates (common/optim/rates.h) of the step that is
  // being pushed; written before `pushed`, read after it.
  double* rates() { return block().rates; }
  // Steps whose gradients of this bucket have been pushed: step + 1, or 0.
  std::atomic<int64_t>& pushed(int bucket) { return words()[bucket]; }
  // Pieces of this bucket that shards have answered since the start, all shards
  // together.
  std::atomic<int64_t>& answered(int bucket) {
    return words()[num_buckets_ + bucket];
  }

 private:
  struct Block {
    SharedCounter ready;
    SharedCounter done;
    CollectiveCall calls[2];
    WakeCount answers;
    ShardSignals shards[kMaxShards];
    double rates[2 * kMaxGroups];
  };

  WorkerArena(const Layout& layout, int num_slots);
  int64_t SlotBegin(int i) const {
    return slots_ + i * (gradients_ - parameters_);
  }
  Block& block() { return *reinterpret_cast<Block*>(arena_->data()); }
  std::atomic<int64_t>* words() {
    return reinterpret_cast<std::atomic<int64_t>*>(arena_->data() +
                                                   sizeof(Block));
  }
  float* At(int64_t element) {
    return reinterpret_cast<float*>(arena_->data()) + element;
  }

  const int num_buckets_;
  const int num_slots_;
  // In elements.
  int64_t staging_ = 0;
  int64_t parameters_ = 0;
  int64_t gradients_ = 0;
  int64_t slots_ = 0;
  int64_t end_ = 0;
  std::unique_ptr<ShmArena> arena_;
  std::unique_ptr<Doorbell> doorbell_;  // null in a peer's
};

}  // namespace psring

#endif  // PSRING_COMMON_MODEL_WORKER_ARENA_H_
