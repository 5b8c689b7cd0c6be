// Wakes a process of this host that waits on a file descriptor: a pipe, which
// its peers open through /proc/PID/fd/FD. It carries no data; what there is to
// be seen lies in shared memory.
#ifndef PSRING_COMMON_NET_DOORBELL_H_
#define PSRING_COMMON_NET_DOORBELL_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/clock.h"

namespace psring {

// The side that is woken. One thread's at a time, but any may wait on fd().
class Doorbell {
 public:
  static absl::StatusOr<std::unique_ptr<Doorbell>> Create();
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  // Readable from a Ring() on until Clear().
  int fd() const { return read_fd_; }
  // For the job's roster: what peers open.
  int write_fd() const { return write_fd_; }

  // Blocks until it is rung, `other_fd` is readable or the deadline has passed;
  // of a Wait (socket.h) what it takes without sockets.
  void Wait(int other_fd, Time deadline);

  // Before looking at what may have changed: a ring that comes later is kept.
  void Clear();

 private:
  Doorbell(int read_fd, int write_fd)
      : read_fd_(read_fd), write_fd_(write_fd) {}

  const int read_fd_;
  const int write_fd_;
};

// The side that wakes. Callable from any thread.
class DoorbellButton {
 public:
  // `pid` has been proven to be a process of this host (ShmArena::Map).
  static absl::StatusOr<std::unique_ptr<DoorbellButton>> Open(int64_t pid,
                                                              int write_fd);
  ~DoorbellButton();
  DoorbellButton(const DoorbellButton&) = delete;
  DoorbellButton& operator=(const DoorbellButton&) = delete;

  // Never blocks. What was written to shared memory before it is seen by
  // whoever wakes. A peer that is gone is not an error.
  void Ring();

 private:
  explicit DoorbellButton(int fd) : fd_(fd) {}

  const int fd_;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_DOORBELL_H_
