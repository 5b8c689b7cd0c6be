#include "collectives/shared_chunks.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/message.h"

namespace psring {
namespace {

// 1: the sender has put a chunk there, which the receiver has not freed.
struct alignas(64) SlotState {
  std::atomic<uint32_t> taken;
};

constexpr int64_t kStateBytes = 4096;
static_assert(kNumChunkSlots * sizeof(SlotState) <= kStateBytes);
constexpr int64_t kArenaBytes =
    kStateBytes + kNumChunkSlots * kSharedChunkBytes;

int64_t OffsetOf(int slot) { return kStateBytes + slot * kSharedChunkBytes; }

std::atomic<uint32_t>& Taken(ShmArena& arena, int slot) {
  return reinterpret_cast<SlotState*>(arena.data())[slot].taken;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedChunks>> SharedChunks::Create() {
  auto arena = ShmArena::Create(kArenaBytes, kStateBytes);
  if (!arena.ok()) return arena.status();
  return std::unique_ptr<SharedChunks>(new SharedChunks(*std::move(arena)));
}

int SharedChunks::Put(absl::string_view chunk, int num_slots) {
  int slot = 0;  // the first free one, which a cache may still hold
  while (slot < num_reserved_ &&
         Taken(*arena_, slot).load(std::memory_order_acquire) != 0) {
    ++slot;
  }
  if (slot >= num_slots) return -1;
  if (slot == num_reserved_) {
    no_memory_ =
        no_memory_ || !arena_->Reserve(OffsetOf(slot), kSharedChunkBytes).ok();
    if (no_memory_) return -1;
    ++num_reserved_;
  }
  Taken(*arena_, slot).store(1, std::memory_order_relaxed);
  std::memcpy(arena_->data() + OffsetOf(slot), chunk.data(), chunk.size());
  return slot;
}

absl::StatusOr<std::unique_ptr<PeerChunks>> PeerChunks::Map(
    const proto::SharedMemory& address) {
  if (address.size_bytes() != kArenaBytes) {
    return absl::UnavailableError(
        absl::StrCat("shared memory of ", address.size_bytes(),
                     " bytes, where chunks take ", kArenaBytes));
  }
  auto arena = ShmArena::Map(address);
  if (!arena.ok()) return arena.status();
  return std::unique_ptr<PeerChunks>(new PeerChunks(*std::move(arena)));
}

absl::StatusOr<Frame> PeerChunks::Take(int slot, int64_t size_bytes) {
  if (slot < 0 || slot >= kNumChunkSlots || size_bytes < 1 ||
      size_bytes > kSharedChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk of ", size_bytes, " bytes in slot ", slot));
  }
  char* const data = arena_->data() + OffsetOf(slot);
  std::shared_ptr<const void> held(data, [arena = arena_, slot](const void*) {
    Taken(*arena, slot).store(0, std::memory_order_release);
  });
  return Frame::Borrow(data, static_cast<size_t>(size_bytes), std::move(held));
}

}  // namespace psring
