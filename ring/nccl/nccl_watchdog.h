// Two threads that look after one NCCL communicator: NCCL hangs in silence when
// a peer of the same host dies, when ranks disagree, and sometimes when it is
// told to stop.
//
// The one sees NCCL's errors, how far the stream is, what cancelled the process
// (the control plane names a lost peer within seconds) and how long the oldest
// collective takes; asking the GPU's driver can hang behind a kernel that
// hangs. The other calls neither CUDA nor NCCL: it judges what has been seen
// and what cancelled the process. It has the communicator aborted, which ends
// what hangs on the GPU, and cancels the process with a reason that names the
// collective, and the culprit where one is known. The abort can hang too; then
// `on_hung_abort` has to end the process.
#ifndef PSRING_RING_NCCL_NCCL_WATCHDOG_H_
#define PSRING_RING_NCCL_NCCL_WATCHDOG_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/net/cancellation.h"
#include "gpu/device.h"
#include "ring/nccl/nccl_handle.h"
#include "ring/nccl/nccl_verdict.h"

namespace psring {

// Logs why and ends the process with status 1, without destructors: they would
// wait for the GPU, which waits for the abort.
[[noreturn]] void ExitOnHungAbort(const absl::Status& why);

struct NcclWatchdogOptions {
  // Between two looks.
  absl::Duration period = absl::Milliseconds(20);
  // How long NCCL's own error waits for the control plane to name the culprit:
  // a little longer than that takes (Member::heartbeat_timeout).
  absl::Duration culprit_grace = absl::Seconds(6);
  // How long a call of the GPU's driver may take, where the oldest collective
  // has no shorter timeout.
  absl::Duration driver_timeout = absl::Minutes(3);
  // Called before an abort that ends collectives in a stream, which goes on
  // behind them with sums that are not complete: what follows there must not be
  // used. A program that does not ask psring first has to be ended. May be
  // empty.
  std::function<void(const absl::Status&)> before_abort;
  // How long an abort may take.
  absl::Duration abort_timeout = absl::Seconds(3);
  // Must not return while the abort hangs, unless something else ends it.
  std::function<void(const absl::Status&)> on_hung_abort = ExitOnHungAbort;
  // Says who does not take part in a collective that is late, by its sequence,
  // in which this rank has waited for so long. Blocks a few seconds at most.
  std::function<std::string(int64_t sequence, absl::Duration waited)>
      who_is_late;
  // Tells all ranks of it. May be empty; never blocks.
  std::function<void(int64_t sequence)> tell_late;
  // The sequence of a collective that another rank has found late, once. May be
  // empty; never blocks.
  std::function<std::optional<int64_t>()> told_late;
};

// One collective on its way, in the order of the stream.
struct WatchedCollective {
  std::string what;
  int64_t sequence = 0;  // the same on every rank
  // Its time runs from there. From the watchdog's pool, and returned to it;
  // none: now.
  std::optional<Event> ready;
  absl::Duration timeout;  // may be infinite
};

class NcclWatchdog {
 public:
  // All references outlive it.
  static std::unique_ptr<NcclWatchdog> Start(Device& device, NcclHandle& handle,
                                             Cancellation& cancellation,
                                             NcclWatchdogOptions options = {});

  // Waits for an abort under way.
  ~NcclWatchdog();

  // One of the device's events, to be given back: with a collective, or alone.
  absl::StatusOr<Event> TakeEvent();
  void GiveBack(Event event);

  // A collective is about to be launched. Collectives begin and are launched
  // one after the other.
  void Begin(WatchedCollective collective);
  // It is in the stream, complete with `done` (from TakeEvent); without, it is
  // complete now.
  void Launched(std::optional<Event> done);

  // Looks now, or waits a moment for a thread that does. OK, or why the
  // communicator has been aborted. Callable from any thread.
  absl::Status Look();

  // The caller has found a failure. Returns the first one.
  absl::Status Abort(absl::Status why);

 private:
  struct InFlight {
    WatchedCollective collective;
    std::optional<Event> done;  // none: not launched
    Time since = Time::InfiniteFuture();
  };

  NcclWatchdog(Device& device, NcclHandle& handle, Cancellation& cancellation,
               NcclWatchdogOptions options);

  void KeepLooking();
  void KeepJudging();
  NcclView View() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Judge() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the thread that looks: drops what is complete and starts the clock of
  // what is next. Asks the GPU without the lock; its error.
  absl::Status Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  // The oldest, where it is still `sequence`; null: it is not.
  InFlight* Oldest(int64_t sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True once: the abort takes too long.
  bool AbortHangs(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Fixed after construction.
  Device& device_;
  NcclHandle& handle_;
  Cancellation& cancellation_;
  const NcclWatchdogOptions options_;

  Mutex mutex_;
  std::deque<InFlight> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> free_events_ ABSL_GUARDED_BY(mutex_);
  // Since when a thread looks; InfiniteFuture: none does.
  Time asked_since_ ABSL_GUARDED_BY(mutex_) = Time::InfiniteFuture();
  absl::Status stream_ ABSL_GUARDED_BY(mutex_);
  // Of a collective that another rank has found late.
  std::optional<int64_t> late_elsewhere_ ABSL_GUARDED_BY(mutex_);
  std::string error_ ABSL_GUARDED_BY(mutex_);
  Time error_since_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  Time abort_deadline_ ABSL_GUARDED_BY(mutex_) = Time::InfiniteFuture();
  bool aborting_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool looked_last_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread aborter_ ABSL_GUARDED_BY(mutex_);

  std::thread looker_;
  std::thread judge_;
};

}  // namespace psring

#endif  // PSRING_RING_NCCL_NCCL_WATCHDOG_H_
