#include "common/net/cancellation.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

Cancellation::Cancellation() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Cancellation::~Cancellation() { close(fd_); }

void Cancellation::Cancel(absl::Status why) {
  MutexLock lock(&mutex_);
  if (!why_.ok()) return;
  why_ = std::move(why);
  const uint64_t one = 1;
  // The counter starts at 0 and is never read: this cannot fail.
  [[maybe_unused]] ssize_t written = write(fd_, &one, sizeof(one));
}

absl::Status Cancellation::SleepUntil(Time time) const {
  while (true) {
    const absl::Duration left = time - Now();
    if (left <= absl::ZeroDuration()) return status();
    const timespec timeout = absl::ToTimespec(left);
    pollfd cancelled = {fd_, POLLIN, 0};
    if (ppoll(&cancelled, 1, &timeout, nullptr) > 0) return status();
  }
}

absl::Status Cancellation::status() const {
  MutexLock lock(&mutex_);
  return why_;
}

}  // namespace psring
