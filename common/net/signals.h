// Ctrl-C, SIGTERM and SIGHUP as a Cancellation.
#ifndef PSRING_COMMON_NET_SIGNALS_H_
#define PSRING_COMMON_NET_SIGNALS_H_

#include <signal.h>

#include <atomic>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "common/net/cancellation.h"

namespace psring {

// What SIGTERM and SIGHUP ask of a process that would rather end at a good
// moment. Any thread.
class SoftStop {
 public:
  // From now on they call `ask`, on the watcher's thread, each time; null:
  // they cancel again. `ask` must not block.
  void Set(std::function<void()> ask);
  // False: there is nobody to ask.
  bool Ask();

  // The work has ended early because somebody asked, here or elsewhere.
  void SetStopped() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  std::atomic<bool> stopped_ = false;
  Mutex mutex_;
  std::function<void()> ask_ ABSL_GUARDED_BY(mutex_);
};

// Whether a signal asks for a good end, at a good moment.
inline bool AsksSoftly(int signal) {
  return signal == SIGTERM || signal == SIGHUP;
}

// Writing to a pipe that nobody reads is an error of the write from now on, not
// the process's end: the same signal may have ended `tee`, and there is a
// checkpoint to be written.
inline void IgnoreBrokenPipes() { signal(SIGPIPE, SIG_IGN); }

struct SignalActions {
  SoftStop* soft_stop = nullptr;  // null: SIGTERM and SIGHUP cancel
  // After one of them the next do nothing, as where others have been given time
  // to end: a closed terminal sends two, and so does Slurm.
  bool patient = false;
  // What SIGUSR1 does, on the watcher's thread. Empty: it ends the process, as
  // by default.
  std::function<void()> on_user_signal = nullptr;
  // What SIGTSTP, a terminal's Ctrl-Z, does before it stops this process, and
  // what is done when that goes on; on the watcher's thread. They must not
  // block. Empty: it stops this process alone.
  std::function<void()> on_suspend = nullptr, on_resume = nullptr;
  // What a second signal does before it ends the process, on the watcher's
  // thread. It must not block. Empty: nothing.
  std::function<void()> last_act = nullptr;
};

// Create it first thing in main, before any other thread exists: threads
// inherit the mask that keeps the signals for this one. The first SIGINT,
// SIGTERM or SIGHUP (a terminal that closes; not under nohup) cancels; a second
// one ends the process at once with 128 + its number, where the actions do not
// say otherwise. A SIGTERM or SIGHUP that is asked of a SoftStop does neither.
class SignalWatcher {
 public:
  // What the actions refer to outlives it.
  explicit SignalWatcher(Cancellation& cancellation,
                         SignalActions actions = {});
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  // The signal that came, or 0. Read after the work has ended.
  int received() const { return received_.load(); }

 private:
  void Watch();

  Cancellation& cancellation_;
  const SignalActions actions_;
  const int stop_fd_;
  std::atomic<int> received_ = 0;
  int signal_fd_ = -1;
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_SIGNALS_H_
