#include "lab/host/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/cluster/environment.h"
#include "common/process/open_files.h"
#include "common/process/thread_limit.h"

namespace psring {
namespace {

absl::Status CallFailed(absl::string_view call, absl::string_view name) {
  const int error = errno;
  const absl::Status status = absl::ErrnoToStatus(
      error, absl::StrCat("cannot start ", name, ": ", call));
  if (error != EAGAIN) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), ". ", kRaiseProcessLimit));
}

// Whether a process catches a signal, or waits for it.
bool Handles(pid_t pid, int signal) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, ":\t");
    uint64_t mask = 0;
    if (parts.size() != 2 || (parts[0] != "SigBlk" && parts[0] != "SigCgt") ||
        !absl::SimpleHexAtoi(parts[1], &mask)) {
      continue;
    }
    if ((mask >> (signal - 1) & 1) != 0) return true;
  }
  return false;
}

// In the child: only async-signal-safe calls. Reports exec's errno.
[[noreturn]] void Become(char* const argv[], char* const variables[],
                         pid_t parent, int output, int inherited,
                         int errno_fd) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before prctl
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  RestoreFileLimit();
  // Exec would keep that they are ignored, as SIGINT is in what a shell's
  // script has started by `&`.
  signal(SIGPIPE, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (inherited >= 0) fcntl(inherited, F_SETFD, 0);  // not closed on exec
  execve(argv[0], argv, variables);
  const int error = errno;
  [[maybe_unused]] ssize_t written = write(errno_fd, &error, sizeof(error));
  _exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentOf(const Command& command) {
  Variables all = ReadVariables();
  for (const auto& [name, value] : command.variables) all[name] = value;
  std::vector<std::string> texts;
  for (const auto& [name, value] : all) {
    texts.push_back(absl::StrCat(name, "=", value));
  }
  return texts;
}

// 0 when the program runs, else exec's errno.
int ReadExecErrno(int fd) {
  int error = 0;
  ssize_t size;
  do {
    size = read(fd, &error, sizeof(error));
  } while (size < 0 && errno == EINTR);
  return size == sizeof(error) ? error : 0;
}

// -1 where the kernel (before 5.3) or a container's rules do not have it.
// glibc 2.36's own declaration of it cannot be used from C++.
int OpenPidfd(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

Ending Reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.exit_code = WEXITSTATUS(status)};
}

}  // namespace

std::string ToString(const Ending& ending) {
  if (ending.signal == 0) return absl::StrCat("exit code ", ending.exit_code);
  const char* name = sigabbrev_np(ending.signal);
  return absl::StrCat("killed by SIG", name ? name : "?", " (",
                      strsignal(ending.signal), ")");
}

absl::StatusOr<std::unique_ptr<Child>> Child::Start(Command command,
                                                    ProcessGroups* groups) {
  const std::vector<char*> argv = Pointers(command.argv);
  const std::vector<std::string> environment = EnvironmentOf(command);
  const std::vector<char*> variables = Pointers(environment);
  int output[2], exec_errno[2];
  if (pipe2(output, O_CLOEXEC) != 0) return CallFailed("pipe", command.name);
  if (pipe2(exec_errno, O_CLOEXEC) != 0) {
    close(output[0]);
    close(output[1]);
    return CallFailed("pipe", command.name);
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    Become(argv.data(), variables.data(), parent, output[1],
           command.inherited_fd, exec_errno[1]);
  }
  const int fork_errno = errno;
  close(output[1]);
  close(exec_errno[1]);
  const int error = pid < 0 ? fork_errno : ReadExecErrno(exec_errno[0]);
  close(exec_errno[0]);
  if (error != 0) {
    errno = error;
    const absl::Status status = CallFailed(command.argv[0], command.name);
    if (pid > 0) Reap(pid);
    close(output[0]);
    return status;
  }
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  if (groups != nullptr) groups->Add(pid);
  const int exit_fd = OpenPidfd(pid);
  return std::unique_ptr<Child>(
      new Child(std::move(command), pid, output[0], exit_fd, groups));
}

Child::~Child() {
  if (!ending_) KillAndReap();
  CloseOutput();
  if (exit_fd_ >= 0) close(exit_fd_);
}

// Not yet reaped, the process holds its group's number.
Ending Child::KillAndReap() {
  kill(-pid_, SIGKILL);
  if (groups_ != nullptr) groups_->Remove(pid_);
  return Reap(pid_);
}

void Child::ReadOutput(absl::FunctionRef<void(absl::string_view)> on_line) {
  // Bounded, so that one that never stops writing does not starve the others;
  // more than a pipe holds, so that nothing is left at the end.
  constexpr int kMaxReads = 16;
  char bytes[16 * 1024];
  for (int i = 0; i < kMaxReads && output_fd_ >= 0; ++i) {
    const ssize_t size = read(output_fd_, bytes, sizeof(bytes));
    if (size > 0) {
      lines_.Append(Now(), absl::string_view(bytes, size), on_line);
    } else if (size < 0 && errno == EINTR) {
      continue;
    } else if (size < 0 && errno == EAGAIN) {
      return;
    } else {
      lines_.Finish(on_line);
      CloseOutput();
    }
  }
}

void Child::CheckEnd(absl::FunctionRef<void(absl::string_view)> on_line) {
  if (ending_) return;
  siginfo_t info = {};
  if (waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return;
  }
  ending_ = KillAndReap();
  ReadOutput(on_line);
  // A process that left the group may hold the pipe open for ever.
  lines_.Finish(on_line);
  CloseOutput();
}

bool Child::IsStopped() const {
  if (ending_) return false;
  siginfo_t info = {};
  return waitid(P_PID, pid_, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

void Child::Signal(int signal) {
  if (!ending_) kill(-pid_, signal);
}

void Child::SignalAlone(int signal) {
  if (!ending_) kill(pid_, signal);
}

bool Child::SignalIfHandled(int signal) {
  if (ending_ || !Handles(pid_, signal)) return false;
  return kill(pid_, signal) == 0;
}

void Child::CloseOutput() {
  if (output_fd_ >= 0) close(output_fd_);
  output_fd_ = -1;
}

}  // namespace psring
