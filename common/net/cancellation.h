// Why a process has to stop, known to all of its threads at once.
#ifndef PSRING_COMMON_NET_CANCELLATION_H_
#define PSRING_COMMON_NET_CANCELLATION_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace psring {

// One per process, created in main, and one of each object that ends threads of
// its own. It outlives every thread that waits on it.
// Whatever waits polls fd() beside what it waits for.
class Cancellation {
 public:
  Cancellation();
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  // `why` must not be OK. The first call wins; later ones are ignored.
  void Cancel(absl::Status why);

  // OK until cancelled.
  absl::Status status() const;

  // Blocks until then, or until cancelled; status().
  absl::Status SleepUntil(Time time) const;

  // Readable from the first Cancel on, for ever.
  int fd() const { return fd_; }

 private:
  const int fd_;
  mutable Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_CANCELLATION_H_
