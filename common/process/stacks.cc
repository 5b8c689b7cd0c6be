#include "common/process/stacks.h"

#include <cxxabi.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <vector>

#include "absl/debugging/symbolize.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/activity.h"
#include "common/mutex.h"
#include "common/stack_signal.h"

namespace psring {
namespace {

constexpr int kMaxFrames = 64;
// The handler, what has called it, and where the thread was.
constexpr int kLeastFrames = 3;
// How often a thread is asked again, and after how long, whose stack ends
// there.
constexpr int kMaxAgain = 20;
constexpr useconds_t kAgainMicroseconds = 5000;

struct ThreadStack {
  pid_t thread = 0;
  std::array<void*, kMaxFrames> frames;
  int depth = 0;
  std::atomic<bool> done = false;

  bool is_done() const { return done.load(std::memory_order_acquire); }
};

void WriteDown(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  auto& stack = *static_cast<ThreadStack*>(info->si_value.sival_ptr);
  stack.depth = backtrace(stack.frames.data(), kMaxFrames);
  stack.done.store(true, std::memory_order_release);
  errno = saved_errno;
}

void Prepare() {
  [[maybe_unused]] static const bool prepared = [] {
    void* frames[1];
    backtrace(frames, 1);  // loads what it needs, which a handler must not
    absl::InitializeSymbolizer(nullptr);
    struct sigaction action = {};
    action.sa_sigaction = WriteDown;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(StackSignal(), &action, nullptr);
    return true;
  }();
}

std::vector<pid_t> Threads() {
  std::vector<pid_t> threads;
  DIR* const directory = opendir("/proc/self/task");
  if (directory == nullptr) return threads;
  while (const dirent* entry = readdir(directory)) {
    pid_t thread = 0;
    if (absl::SimpleAtoi(entry->d_name, &thread)) threads.push_back(thread);
  }
  closedir(directory);
  return threads;
}

std::string FirstLine(pid_t thread, const char* file) {
  std::ifstream in(absl::StrCat("/proc/self/task/", thread, "/", file));
  std::string line;
  std::getline(in, line);
  return line;
}

void Ask(ThreadStack& stack) {
  siginfo_t info = {};
  info.si_signo = StackSignal();
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = &stack;
  syscall(SYS_rt_tgsigqueueinfo, getpid(), stack.thread, StackSignal(), &info);
}

std::string NameAt(const void* address) {
  std::array<char, 1024> symbol;
  if (!absl::Symbolize(address, symbol.data(), symbol.size())) {
    Dl_info about = {};
    const bool known = dladdr(address, &about) != 0 && about.dli_fname;
    return known ? absl::StrCat("? in ", about.dli_fname) : "?";
  }
  // Of what absl leaves as it is: "_ZN6psring5StartB5cxx11Ev".
  int status = 0;
  char* const name =
      abi::__cxa_demangle(symbol.data(), nullptr, nullptr, &status);
  if (name == nullptr) return symbol.data();
  const std::string text = name;
  free(name);
  return text;
}

std::string Text(const ThreadStack& stack) {
  std::string text = absl::StrCat("thread ", stack.thread, " (",
                                  FirstLine(stack.thread, "comm"), ")\n");
  if (!stack.is_done()) {
    absl::StrAppend(&text, "  takes no signals; in the kernel: ",
                    FirstLine(stack.thread, "wchan"), "\n");
    return text;
  }
  // Without the handler and what has called it.
  for (int i = 2; i < stack.depth; ++i) {
    // A return address may be the first of another function.
    const char* const frame = static_cast<const char*>(stack.frames[i]);
    absl::StrAppend(&text, "  ", NameAt(i == 2 ? frame : frame - 1), "\n");
  }
  return text;
}

}  // namespace

std::string ThreadsReport(absl::Duration patience) {
  static auto& mutex = *new Mutex;  // one report at a time
  const MutexLock lock(&mutex);
  Prepare();
  // Kept for ever: a thread may answer late.
  static auto& stacks = *new std::deque<ThreadStack>;
  const auto ask = [](pid_t thread) {
    ThreadStack& stack = stacks.emplace_back();
    stack.thread = thread;
    Ask(stack);
    return &stack;
  };
  const Time deadline = Now() + patience;
  const auto await = [deadline](const ThreadStack& stack) {
    while (!stack.is_done() && Now() < deadline) usleep(1000);
  };
  std::vector<ThreadStack*> asked;
  for (const pid_t thread : Threads()) asked.push_back(ask(thread));
  for (ThreadStack* stack : asked) await(*stack);
  // In code without unwind tables, as BLAS kernels are, nobody can tell who has
  // called it. It does not stay there.
  for (ThreadStack*& stack : asked) {
    for (int i = 0; i < kMaxAgain && stack->is_done() &&
                    stack->depth <= kLeastFrames && Now() < deadline;
         ++i) {
      usleep(kAgainMicroseconds);
      ThreadStack* const again = ask(stack->thread);
      await(*again);
      if (again->is_done()) stack = again;
    }
  }
  std::string report;
  for (const std::string& activity : ActivityBoard::TellAll()) {
    absl::StrAppend(&report, activity, "\n");
  }
  for (const ThreadStack* stack : asked) {
    absl::StrAppend(&report, Text(*stack));
  }
  return report;
}

}  // namespace psring
