#include "common/net/signals.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

bool IsIgnored(int signal) {
  struct sigaction action = {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

// As by default, which the kernel leaves out where no shell could let the
// process go on. Returns when it goes on.
void Suspend() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
  raise(SIGTSTP);  // to this thread, so that it stops here
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
}

}  // namespace

void SoftStop::Set(std::function<void()> ask) {
  MutexLock lock(&mutex_);
  ask_ = std::move(ask);
}

bool SoftStop::Ask() {
  MutexLock lock(&mutex_);
  if (ask_) ask_();
  return ask_ != nullptr;
}

SignalWatcher::SignalWatcher(Cancellation& cancellation, SignalActions actions)
    : cancellation_(cancellation),
      actions_(std::move(actions)),
      stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  if (!IsIgnored(SIGHUP)) sigaddset(&set, SIGHUP);
  if (actions_.on_user_signal) sigaddset(&set, SIGUSR1);
  if (actions_.on_suspend && !IsIgnored(SIGTSTP)) sigaddset(&set, SIGTSTP);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  thread_ = std::thread([this] { Watch(); });
}

SignalWatcher::~SignalWatcher() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(stop_fd_, &one, sizeof(one));
  thread_.join();
  close(signal_fd_);
  close(stop_fd_);
}

void SignalWatcher::Watch() {
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof(info)) != sizeof(info)) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGUSR1) {
      actions_.on_user_signal();
      continue;
    }
    if (signal == SIGTSTP) {
      actions_.on_suspend();
      Suspend();
      actions_.on_resume();
      continue;
    }
    SoftStop* const soft_stop = actions_.soft_stop;
    if (AsksSoftly(signal) && soft_stop != nullptr && soft_stop->Ask()) {
      continue;
    }
    const bool again = AsksSoftly(signal) && AsksSoftly(received_.load());
    if (again && actions_.patient) continue;
    if (received_.exchange(signal) != 0) {
      if (actions_.last_act) actions_.last_act();
      _exit(128 + signal);
    }
    cancellation_.Cancel(absl::CancelledError(absl::StrCat(
        "interrupted by ", strsignal(signal), " (signal ", signal, ")")));
  }
}

}  // namespace psring
