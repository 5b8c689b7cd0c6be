#include "common/model/flat_model.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// Two buffers that shared one could not both be page-locked for a GPU.
constexpr int64_t kPageElements = 4096 / sizeof(float);

// Layouts end below this, and it keeps sizes in bytes from overflowing.
constexpr int64_t kMaxElements = int64_t{1} << 40;

}  // namespace

absl::StatusOr<FlatBuffer> FlatBuffer::Create(int64_t num_elements) {
  if (num_elements < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a buffer of ", num_elements, " elements"));
  }
  FlatBuffer buffer;
  if (num_elements == 0) return buffer;
  void* memory = MAP_FAILED;
  if (num_elements <= kMaxElements) {
    memory = mmap(nullptr, num_elements * sizeof(float), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", num_elements, " float32 elements (",
                     num_elements / (1 << 20) * sizeof(float), " MiB)"));
  }
  buffer.data_ = static_cast<float*>(memory);
  buffer.size_ = num_elements;
  buffer.owned_ = true;
  buffer.memory_ = std::shared_ptr<const void>(
      memory, [bytes = num_elements * sizeof(float)](void* mapped) {
        munmap(mapped, bytes);
      });
  return buffer;
}

FlatBuffer FlatBuffer::Borrow(float* data, int64_t num_elements,
                              std::shared_ptr<const void> memory) {
  FlatBuffer buffer;
  buffer.data_ = data;
  buffer.size_ = num_elements;
  buffer.memory_ = std::move(memory);
  return buffer;
}

FlatBuffer& FlatBuffer::operator=(FlatBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(owned_, other.owned_);
  std::swap(memory_, other.memory_);
  return *this;
}

void FlatBuffer::Release(Range range) {
  const int64_t begin =
      (range.begin + kPageElements - 1) / kPageElements * kPageElements;
  const int64_t end = range.end / kPageElements * kPageElements;
  if (begin >= end) return;
  // What is borrowed is shared memory, whose pages only MADV_REMOVE frees. If
  // the system refuses, it keeps the pages.
  madvise(data_ + begin, (end - begin) * sizeof(float),
          owned_ ? MADV_DONTNEED : MADV_REMOVE);
}

void CopyAll(absl::Span<const FlatBuffer> from, absl::Span<float* const> to) {
  for (size_t i = 0; i < from.size(); ++i) {
    std::copy_n(from[i].data(), from[i].size(), to[i]);
  }
}

absl::StatusOr<FlatModel> FlatModel::Create(Layout layout, SameHost same_host,
                                            int num_slots) {
  if (same_host == SameHost::kAuto) {
    auto created = WorkerArena::Create(layout, num_slots);
    if (!created.ok()) return created.status();
    const std::shared_ptr<WorkerArena> arena = *std::move(created);
    const int64_t n = layout.num_elements();
    return FlatModel{std::move(layout), arena,
                     FlatBuffer::Borrow(arena->parameters(), n, arena),
                     FlatBuffer::Borrow(arena->gradients(), n, arena)};
  }
  absl::StatusOr<FlatBuffer> parameters =
      FlatBuffer::Create(layout.num_elements());
  if (!parameters.ok()) return parameters.status();
  absl::StatusOr<FlatBuffer> gradients =
      FlatBuffer::Create(layout.num_elements());
  if (!gradients.ok()) return gradients.status();
  return FlatModel{std::move(layout), nullptr, *std::move(parameters),
                   *std::move(gradients)};
}

}  // namespace psring
