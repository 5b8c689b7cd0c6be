#include "common/model/flat_model.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// Pages: two buffers that shared one could not both be page-locked for a GPU.
constexpr size_t kAlignBytes = 4096;

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
  void* memory = nullptr;
  if (num_elements <= kMaxElements) {
    const size_t bytes = num_elements * sizeof(float);
    const size_t rounded =
        (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
    memory = std::aligned_alloc(kAlignBytes, rounded);
    if (memory != nullptr) std::memset(memory, 0, rounded);
  }
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", num_elements, " float32 elements (",
                     num_elements / (1 << 20) * sizeof(float), " MiB)"));
  }
  buffer.data_ = static_cast<float*>(memory);
  buffer.size_ = num_elements;
  buffer.owned_ = true;
  return buffer;
}

FlatBuffer FlatBuffer::Borrow(float* data, int64_t num_elements) {
  FlatBuffer buffer;
  buffer.data_ = data;
  buffer.size_ = num_elements;
  return buffer;
}

FlatBuffer& FlatBuffer::operator=(FlatBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(owned_, other.owned_);
  return *this;
}

FlatBuffer::~FlatBuffer() {
  if (owned_) std::free(data_);
}

absl::StatusOr<FlatModel> FlatModel::Create(Layout layout, SameHost same_host,
                                            int num_slots) {
  if (same_host == SameHost::kAuto) {
    auto arena = WorkerArena::Create(layout, num_slots);
    if (!arena.ok()) return arena.status();
    const int64_t n = layout.num_elements();
    FlatBuffer parameters = FlatBuffer::Borrow((*arena)->parameters(), n);
    FlatBuffer gradients = FlatBuffer::Borrow((*arena)->gradients(), n);
    return FlatModel{std::move(layout), *std::move(arena),
                     std::move(parameters), std::move(gradients)};
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
