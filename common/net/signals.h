// Ctrl-C and SIGTERM as a Cancellation.
#ifndef PSRING_COMMON_NET_SIGNALS_H_
#define PSRING_COMMON_NET_SIGNALS_H_

#include <signal.h>

#include <atomic>
#include <thread>

#include "common/net/cancellation.h"

namespace psring {

// Create it first thing in main, before any other thread exists: threads
// inherit the mask that keeps SIGINT and SIGTERM for this one. The first signal
// cancels; a second one ends the process at once with 128 + its number.
class SignalWatcher {
 public:
  explicit SignalWatcher(Cancellation& cancellation);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  // The signal that came, or 0. Read after the work has ended.
  int received() const { return received_.load(); }

 private:
  void Watch();

  Cancellation& cancellation_;
  const int stop_fd_;
  std::atomic<int> received_ = 0;
  int signal_fd_ = -1;
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_SIGNALS_H_
