#include "tests/testing/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const ProcessOptions& options) {
  std::vector<std::string> all;
  // Jobs of tests have more workers than hosts have GPUs: they see none.
  auto env = options.env;
  env.emplace_back("CUDA_VISIBLE_DEVICES", "");
  const auto replaced = [&](const std::string& variable) {
    return std::any_of(env.begin(), env.end(), [&](const auto& e) {
      return variable.rfind(absl::StrCat(e.first, "="), 0) == 0;
    });
  };
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!replaced(*variable)) all.push_back(*variable);
  }
  for (const auto& [name, value] : env) {
    all.push_back(absl::StrCat(name, "=", value));
  }
  return all;
}

// In the child: only async-signal-safe calls.
[[noreturn]] void Become(char* const argv[], char* const env[], const char* cwd,
                         pid_t parent, int output) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before prctl
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (*cwd == '\0' || chdir(cwd) == 0) execve(argv[0], argv, env);
  _exit(127);
}

std::string Runfile(const char* path) {
  return std::filesystem::absolute(path);
}

}  // namespace

absl::StatusOr<Process> Process::Start(std::vector<std::string> argv,
                                       const ProcessOptions& options) {
  if (access(argv[0].c_str(), X_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot run ", argv[0]));
  }
  std::vector<std::string> environment = Environment(options);
  const std::vector<char*> arg_pointers = Pointers(argv);
  const std::vector<char*> env_pointers = Pointers(environment);
  const int output = memfd_create("output", MFD_CLOEXEC);
  if (output < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    Become(arg_pointers.data(), env_pointers.data(), options.cwd.c_str(),
           parent, output);
  }
  if (pid < 0) {
    close(output);
    return absl::ErrnoToStatus(errno, "fork");
  }
  setpgid(pid, pid);  // here too: whoever comes first
  return Process(pid, static_cast<int>(syscall(SYS_pidfd_open, pid, 0)),
                 output);
}

Process::~Process() { Kill(); }

Process::Process(Process&& other) noexcept { *this = std::move(other); }

Process& Process::operator=(Process&& other) noexcept {
  if (this == &other) return *this;
  Kill();
  pid_ = std::exchange(other.pid_, -1);
  exit_fd_ = std::exchange(other.exit_fd_, -1);
  output_fd_ = std::exchange(other.output_fd_, -1);
  code_ = std::exchange(other.code_, std::nullopt);
  return *this;
}

void Process::Kill() {
  if (pid_ < 0) return;
  if (!code_) {
    kill(-pid_, SIGKILL);
    Wait(Time::InfiniteFuture());
  }
  close(exit_fd_);
  close(output_fd_);
  pid_ = -1;
}

std::string Process::Output() const {
  std::string output;
  char bytes[16 * 1024];
  ssize_t size;
  while ((size = pread(output_fd_, bytes, sizeof(bytes),
                       static_cast<off_t>(output.size()))) > 0) {
    output.append(bytes, size);
  }
  return output;
}

bool Process::WaitForOutput(const std::string& text, Time deadline) {
  while (true) {
    // Asked first: what it printed before its end counts.
    const bool ended = Ends(absl::ZeroDuration());
    if (Output().find(text) != std::string::npos) return true;
    if (ended || Now() >= deadline) return false;
    Ends(absl::Milliseconds(5));
  }
}

void Process::Signal(int signal) {
  if (!code_) kill(pid_, signal);
}

int Process::Wait(Time deadline) {
  if (code_) return *code_;
  while (!Ends(
      std::clamp(deadline - Now(), absl::ZeroDuration(), absl::Seconds(60)))) {
    if (Now() >= deadline) return -1;
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return *code_;
}

bool Process::Ends(absl::Duration timeout) {
  if (code_) return true;
  pollfd end = {exit_fd_, POLLIN, 0};
  const auto milliseconds =
      absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  return poll(&end, 1, static_cast<int>(milliseconds)) > 0;
}

Ran RunProcess(std::vector<std::string> argv, Time deadline,
               const ProcessOptions& options) {
  auto process = Process::Start(std::move(argv), options);
  if (!process.ok()) return {-1, process.status().ToString()};
  const int code = process->Wait(deadline);
  return {code, process->Output()};
}

std::string PsBinary() { return Runfile("ps/ps"); }
std::string WorkerBinary() { return Runfile("worker/worker"); }
std::string PsringBinary() { return Runfile("cli/psring"); }

}  // namespace psring
