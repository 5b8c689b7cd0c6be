#include "tests/testing/fake_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

constexpr int kDirt = 0xff;  // floats that are no numbers

bool Contains(const void* base, int64_t size, const void* data, int64_t bytes) {
  const char* begin = static_cast<const char*>(base);
  const char* from = static_cast<const char*>(data);
  return from >= begin && from + bytes <= begin + size;
}

bool ShareAPage(const void* a, int64_t a_bytes, const void* b,
                int64_t b_bytes) {
  const auto page = [](const void* data, int64_t offset) {
    return (reinterpret_cast<uintptr_t>(data) + offset) / 4096;
  };
  return page(a, 0) <= page(b, b_bytes - 1) &&
         page(b, 0) <= page(a, a_bytes - 1);
}

size_t MappedBytes(int64_t size_bytes) {
  return static_cast<size_t>(std::max<int64_t>(size_bytes, 1));
}

}  // namespace

FakeAllocations::~FakeAllocations() {
  for (const auto& [data, allocation] : allocated_) Unmap(data, allocation);
}

void FakeAllocations::Unmap(const void* data, const Allocation& allocation) {
  const size_t size = MappedBytes(allocation.size_bytes);
  munmap(allocation.reach, size);
  if (data != allocation.reach) munmap(const_cast<void*>(data), size);
}

absl::StatusOr<void*> FakeAllocations::Allocate(int64_t size_bytes) {
  const size_t size = MappedBytes(size_bytes);
  const int file = memfd_create("fake GPU", MFD_CLOEXEC);
  const bool sized =
      file >= 0 && ftruncate(file, static_cast<off_t>(size)) == 0;
  void* const reach = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED,
                           sized ? file : -1, 0);
  void* const data = memory_ == FakeMemory::kOpen
                         ? reach
                         : mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (reach == MAP_FAILED || data == MAP_FAILED) {
    return absl::InternalError("no memory for a fake GPU");
  }
  std::memset(reach, kDirt, size);
  allocated_[data] = {size_bytes, static_cast<char*>(reach)};
  return data;
}

void FakeAllocations::Free(const void* data) {
  const auto found = allocated_.find(data);
  if (found == allocated_.end()) return;
  Unmap(data, found->second);
  allocated_.erase(found);
}

int64_t FakeAllocations::allocated_bytes() const {
  int64_t bytes = 0;
  for (const auto& [data, allocation] : allocated_) {
    bytes += allocation.size_bytes;
  }
  return bytes;
}

absl::Status FakeAllocations::Register(const void* data, int64_t size_bytes) {
  for (const auto& [other, other_bytes] : registered_) {
    if (ShareAPage(data, size_bytes, other, other_bytes)) {
      return absl::AlreadyExistsError(absl::StrCat(
          "a page of these ", size_bytes, " bytes is page-locked already"));
    }
  }
  registered_[data] = size_bytes;
  return absl::OkStatus();
}

bool FakeAllocations::HasAllocated(const void* data, int64_t size_bytes) const {
  return std::any_of(
      allocated_.begin(), allocated_.end(), [&](const auto& entry) {
        return Contains(entry.first, entry.second.size_bytes, data, size_bytes);
      });
}

bool FakeAllocations::HasRegistered(const void* data,
                                    int64_t size_bytes) const {
  return std::any_of(
      registered_.begin(), registered_.end(), [&](const auto& entry) {
        return Contains(entry.first, entry.second, data, size_bytes);
      });
}

char* FakeAllocations::Reach(const void* data) const {
  for (const auto& [base, allocation] : allocated_) {
    if (!Contains(base, allocation.size_bytes, data, 1)) continue;
    return allocation.reach +
           (static_cast<const char*>(data) - static_cast<const char*>(base));
  }
  return const_cast<char*>(static_cast<const char*>(data));
}

}  // namespace psring
