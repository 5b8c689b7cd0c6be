// Chunks in memory that the ranks of a host share, in place of messages'
// payloads: one copy by the sender, and the receiver sums or copies from there.
//
// Each rank has an arena (common/net/shm_arena.h) of slots, a chunk each. The
// sender takes a slot that is free; the receiver frees it when it has done with
// the chunk. Nothing else is said about slots: a receiver that never frees them
// makes the sender go back to messages.
#ifndef PSRING_COLLECTIVES_SHARED_CHUNKS_H_
#define PSRING_COLLECTIVES_SHARED_CHUNKS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/shm_arena.h"
#include "common/net/socket.h"
#include "protos/cluster.pb.h"

namespace psring {

inline constexpr int kNumChunkSlots = 32;

// What this rank sends. One thread's at a time.
class SharedChunks {
 public:
  // Slots take memory at their first use. Errors: as ShmArena's.
  static absl::StatusOr<std::unique_ptr<SharedChunks>> Create();

  // For the receivers.
  const proto::SharedMemory& address() const { return arena_->address(); }

  // Copies `chunk`, of at most kSharedChunkBytes, to one of the first slots;
  // its number. -1: none of so many is free, or there is no memory for one.
  int Put(absl::string_view chunk, int num_slots = kNumChunkSlots);

 private:
  explicit SharedChunks(std::unique_ptr<ShmArena> arena)
      : arena_(std::move(arena)) {}

  const std::unique_ptr<ShmArena> arena_;
  int num_reserved_ = 0;    // slots that have memory, from the first on
  bool no_memory_ = false;  // for more
};

// What another rank sends. One thread's at a time; the frames outlive it.
class PeerChunks {
 public:
  // UNAVAILABLE as ShmArena's, and where it has another size.
  static absl::StatusOr<std::unique_ptr<PeerChunks>> Map(
      const proto::SharedMemory& address);

  // The chunk in `slot`, to be read alone. The slot becomes free with the
  // frame. INVALID_ARGUMENT where there is no such slot or size.
  absl::StatusOr<Frame> Take(int slot, int64_t size_bytes);

 private:
  explicit PeerChunks(std::shared_ptr<ShmArena> arena)
      : arena_(std::move(arena)) {}

  const std::shared_ptr<ShmArena> arena_;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_SHARED_CHUNKS_H_
