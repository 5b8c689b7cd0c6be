#include "lab/host/first_process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// Of the child, once it has ended.
std::optional<int> ReapAll(pid_t child) {
  std::optional<int> code;
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid != child) continue;
    code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return code;
}

}  // namespace

absl::StatusOr<int> RunAsFirstProcess(const std::vector<char*>& argv) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  const pid_t child = fork();
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  if (child < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot start a process: ", strerror(errno)));
  }
  while (true) {
    siginfo_t info = {};
    const int signal = sigwaitinfo(&all, &info);
    if (signal < 0) continue;
    if (signal != SIGCHLD) {
      // A terminal's own reach the child by themselves.
      if (info.si_code != SI_KERNEL) kill(child, signal);
      continue;
    }
    if (const auto code = ReapAll(child)) return *code;
  }
}

}  // namespace psring
