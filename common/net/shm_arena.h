// Memory that the processes of one host share.
//
// An arena is an anonymous file in memory (memfd): it has no name, so nothing
// of it is left when its processes end, however they end; it does not lie in
// /dev/shm, whose size containers bound; nobody can shrink it under those who
// have mapped it (it is sealed). A peer opens it through /proc/PID/fd/FD, as
// its address says, and believes that both are on one host only when it has
// read there the random number that came with the address over the control
// plane. Where that fails (another host, another container, another user) the
// payload travels in messages.
#ifndef PSRING_COMMON_NET_SHM_ARENA_H_
#define PSRING_COMMON_NET_SHM_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "protos/cluster.pb.h"

namespace psring {

// Mapped until destroyed. What lies in it needs its own synchronisation.
class ShmArena {
 public:
  // `size_bytes` of zeroed memory, of which the first `reserved_bytes` (all,
  // without it) are there for certain. RESOURCE_EXHAUSTED says how much was
  // asked for and how much there is.
  static absl::StatusOr<std::unique_ptr<ShmArena>> Create(int64_t size_bytes);
  static absl::StatusOr<std::unique_ptr<ShmArena>> Create(
      int64_t size_bytes, int64_t reserved_bytes);

  // A peer's. UNAVAILABLE, with the reason, when it is not proven to be on this
  // host.
  static absl::StatusOr<std::unique_ptr<ShmArena>> Map(
      const proto::SharedMemory& address);

  ~ShmArena();
  ShmArena(const ShmArena&) = delete;
  ShmArena& operator=(const ShmArena&) = delete;

  // Of an arena that Create has made: so many bytes from `offset` on are there
  // for certain. RESOURCE_EXHAUSTED as Create's.
  absl::Status Reserve(int64_t offset, int64_t size_bytes);

  // Where peers find it.
  const proto::SharedMemory& address() const { return address_; }

  // Page-aligned; size_bytes() of them.
  char* data() { return base_ + kHeaderBytes; }
  int64_t size_bytes() const { return address_.size_bytes(); }

 private:
  // The nonce's page; data() lies behind it.
  static constexpr int64_t kHeaderBytes = 4096;

  explicit ShmArena(int fd) : fd_(fd) {}
  absl::Status MapFile();

  int fd_;  // of its maker; -1: what is mapped needs none
  char* base_ = nullptr;
  proto::SharedMemory address_;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_SHM_ARENA_H_
