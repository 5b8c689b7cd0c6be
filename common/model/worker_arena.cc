#include "common/model/worker_arena.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

constexpr int64_t kPageElements = 4096 / sizeof(float);

int64_t RoundToPage(int64_t elements) {
  return (elements + kPageElements - 1) / kPageElements * kPageElements;
}

constexpr int64_t ElementsOf(int64_t bytes) {
  return (bytes + sizeof(float) - 1) / sizeof(float);
}

}  // namespace

WorkerArena::WorkerArena(const Layout& layout, int num_slots)
    : num_buckets_(layout.num_buckets()), num_slots_(num_slots) {
  const int64_t words = 2 * sizeof(std::atomic<int64_t>) * layout.num_buckets();
  staging_ = RoundToPage(ElementsOf(sizeof(Block) + words));
  parameters_ = staging_ + 2 * kStagingElements;
  gradients_ = parameters_ + RoundToPage(layout.num_elements());
  slots_ = gradients_ + RoundToPage(layout.num_elements());
  end_ = slots_ + num_slots * RoundToPage(layout.num_elements());
}

absl::StatusOr<std::unique_ptr<WorkerArena>> WorkerArena::Create(
    const Layout& layout, int num_slots) {
  std::unique_ptr<WorkerArena> arena(new WorkerArena(layout, num_slots));
  auto memory =
      ShmArena::Create(arena->end_ * static_cast<int64_t>(sizeof(float)),
                       arena->slots_ * static_cast<int64_t>(sizeof(float)));
  if (!memory.ok()) return memory.status();
  arena->arena_ = *std::move(memory);
  auto doorbell = Doorbell::Create();
  if (!doorbell.ok()) return doorbell.status();
  arena->doorbell_ = *std::move(doorbell);
  return arena;
}

absl::Status WorkerArena::ReserveSlot(int i, Range range) {
  constexpr int64_t kBytes = sizeof(float);
  return arena_->Reserve((SlotBegin(i) + range.begin) * kBytes,
                         range.size() * kBytes);
}

proto::SharedMemory WorkerArena::address() const {
  proto::SharedMemory address = arena_->address();
  address.clear_doorbell_fds();
  if (doorbell_ != nullptr) address.add_doorbell_fds(doorbell_->write_fd());
  return address;
}

absl::StatusOr<std::unique_ptr<WorkerArena>> WorkerArena::Map(
    const Layout& layout, int num_slots, const proto::SharedMemory& address) {
  std::unique_ptr<WorkerArena> arena(new WorkerArena(layout, num_slots));
  if (address.size_bytes() !=
      arena->end_ * static_cast<int64_t>(sizeof(float))) {
    return absl::UnavailableError(absl::StrCat(
        "process ", address.pid(), " shares ", address.size_bytes(),
        " bytes where the model takes ", arena->end_ * sizeof(float)));
  }
  auto memory = ShmArena::Map(address);
  if (!memory.ok()) return memory.status();
  arena->arena_ = *std::move(memory);
  return arena;
}

}  // namespace psring
