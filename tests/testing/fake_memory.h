// What a fake GPU can reach: its own memory, which lies in this host's, and
// memory of the host that has been page-locked for it. Whoever uses it guards
// it.
#ifndef PSRING_TESTS_TESTING_FAKE_MEMORY_H_
#define PSRING_TESTS_TESTING_FAKE_MEMORY_H_

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace psring {

// kOpen: anybody in this process can read and write it. kGuarded: nobody at the
// addresses that are given out, as with a real GPU's.
enum class FakeMemory { kOpen, kGuarded };

class FakeAllocations {
 public:
  explicit FakeAllocations(FakeMemory memory) : memory_(memory) {}
  ~FakeAllocations();
  FakeAllocations(const FakeAllocations&) = delete;
  FakeAllocations& operator=(const FakeAllocations&) = delete;

  // Memory that holds what nobody should read.
  absl::StatusOr<void*> Allocate(int64_t size_bytes);
  void Free(const void* data);
  int64_t allocated_bytes() const;

  // ALREADY_EXISTS where a page of it has been registered.
  absl::Status Register(const void* data, int64_t size_bytes);
  void Unregister(const void* data) { registered_.erase(data); }
  int num_registered() const { return static_cast<int>(registered_.size()); }

  // Whether all of it is of one allocation, or of memory that is registered.
  bool HasAllocated(const void* data, int64_t size_bytes) const;
  bool HasRegistered(const void* data, int64_t size_bytes) const;

  // Where what lies at an address is read and written; of other memory the
  // address itself.
  char* Reach(const void* data) const;

 private:
  struct Allocation {
    int64_t size_bytes = 0;
    char* reach = nullptr;  // what is really read and written
  };

  static void Unmap(const void* data, const Allocation& allocation);

  const FakeMemory memory_;
  std::map<const void*, Allocation> allocated_;
  std::map<const void*, int64_t> registered_;
};

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_FAKE_MEMORY_H_
