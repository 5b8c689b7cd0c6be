#include "python/capi/interrupts.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>

namespace psring {
namespace {

// What a signal handler may touch.
std::atomic<int> waiting = 0;
std::atomic<int> interrupts = 0;
std::atomic<int> wake_fd = -1;
// The handlers that ours replaced, oldest first. OnInterrupt calls the newest.
// A handler that chains (faulthandler with chain=True) may call OnInterrupt
// again from within: that call continues with the next older one, or the two
// would call each other for ever.
constexpr int kMostHandlers = 8;
struct sigaction handlers[kMostHandlers];
std::atomic<int> num_handlers = 0;
std::atomic<int> calls = 0;  // of OnInterrupt, one within the other

// Of the wait that began last; processes live for ever.
std::atomic<Cancellation*> target = nullptr;

thread_local int interrupts_before = 0;

void Call(const struct sigaction& handler, int signal, siginfo_t* info,
          void* context) {
  if ((handler.sa_flags & SA_SIGINFO) != 0) {
    handler.sa_sigaction(signal, info, context);
  } else if (handler.sa_handler == SIG_DFL) {
    ::signal(signal, SIG_DFL);
    raise(signal);
  } else if (handler.sa_handler != SIG_IGN) {
    handler.sa_handler(signal);
  }
}

void OnInterrupt(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (waiting.load() > 0) {
    interrupts.fetch_add(1);
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t written = write(wake_fd.load(), &one, sizeof(one));
  }
  const int next = num_handlers.load() - 1 - calls.fetch_add(1);
  if (next >= 0) Call(handlers[next], signal, info, context);
  calls.fetch_sub(1);
  errno = saved_errno;
}

// Makes `handler` the newest; forgets the oldest where there are too many.
void AddHandler(const struct sigaction& handler) {
  const auto is_it = [&](const struct sigaction& other) {
    return other.sa_sigaction == handler.sa_sigaction;  // or sa_handler
  };
  const auto end = handlers + num_handlers.load();
  auto kept = std::remove_if(handlers, end, is_it);
  if (kept == handlers + kMostHandlers) {
    kept = std::move(handlers + 1, kept, handlers);
  }
  *kept = handler;
  num_handlers.store(static_cast<int>(kept + 1 - handlers));
}

// A program may set a handler of its own at any time: ours goes before it
// again.
void PutHandlerInFront() {
  struct sigaction now;
  sigaction(SIGINT, nullptr, &now);
  const bool ours =
      (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnInterrupt;
  const bool ignored =
      (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN;
  if (ours || ignored) return;
  AddHandler(now);
  struct sigaction mine = {};
  mine.sa_sigaction = OnInterrupt;
  mine.sa_mask = now.sa_mask;
  mine.sa_flags = now.sa_flags | SA_SIGINFO;
  sigaction(SIGINT, &mine, nullptr);
}

// Where the system has no thread or no descriptor for it, SIGINT ends no wait,
// and the next one tries again.
void StartWatcher() {
  const int fd = eventfd(0, EFD_CLOEXEC);
  if (fd < 0) return;
  try {
    std::thread([fd] {
      // SIGINT is for the threads that were there before.
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGINT);
      pthread_sigmask(SIG_BLOCK, &set, nullptr);
      while (true) {
        uint64_t count = 0;
        if (read(fd, &count, sizeof(count)) != sizeof(count)) continue;
        target.load()->Cancel(absl::CancelledError("interrupted by SIGINT"));
      }
    }).detach();
    wake_fd.store(fd);
  } catch (const std::system_error&) {
    close(fd);
  }
}

}  // namespace

InterruptScope::InterruptScope(Cancellation& cancellation) {
  target.store(&cancellation);
  if (wake_fd.load() < 0) StartWatcher();
  interrupts_before = interrupts.load();
  PutHandlerInFront();
  waiting.fetch_add(1);
}

InterruptScope::~InterruptScope() { waiting.fetch_sub(1); }

void ForgetInterrupts() {
  waiting.store(0);
  calls.store(0);
  wake_fd.store(-1);
}

bool InterruptScope::interrupted() const {
  return interrupts.load() != interrupts_before;
}

}  // namespace psring
