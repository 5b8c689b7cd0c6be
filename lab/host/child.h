// One process that this one started, its output, and its end.
#ifndef PSRING_LAB_HOST_CHILD_H_
#define PSRING_LAB_HOST_CHILD_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lab/host/line_buffer.h"
#include "lab/host/process_groups.h"

namespace psring {

struct Command {
  std::string name;  // for people: "worker 0"
  std::vector<std::string> argv;
  // Added to this process's environment, or in place of variables there.
  std::map<std::string, std::string> variables = {};
  int inherited_fd = -1;  // that it gets beside its output; -1: none
};

// How a process ended.
struct Ending {
  int exit_code = 0;
  int signal = 0;  // that killed it, or 0

  bool ok() const { return exit_code == 0 && signal == 0; }
  // As a shell gives it: 128 + signal for a killed process.
  int shell_code() const { return signal != 0 ? 128 + signal : exit_code; }
};

// "exit code 3", "killed by SIGSEGV (Segmentation fault)".
std::string ToString(const Ending& ending);

// Lives in a process group of its own, so that a terminal's Ctrl-C does not
// reach it; reads nothing; dies with this process, whatever ends that. One
// thread's own: the one that started it, which must not end before it.
class Child {
 public:
  // INVALID_ARGUMENT or NOT_FOUND when the program cannot be executed.
  // `groups`, if any, outlives it and has its group while it lives.
  static absl::StatusOr<std::unique_ptr<Child>> Start(
      Command command, ProcessGroups* groups = nullptr);

  // Kills what is left of its group.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& name() const { return command_.name; }
  pid_t pid() const { return pid_; }

  // To poll: readable output, or its end; -1 once the output has ended.
  int output_fd() const { return output_fd_; }
  // To poll: readable once the process has ended.
  int exit_fd() const { return exit_fd_; }

  // Reads what has come; never blocks.
  void ReadOutput(absl::FunctionRef<void(absl::string_view)> on_line);

  // Never blocks. When the process has ended, reads the rest of its output,
  // kills what it left in its group and fills ending().
  void CheckEnd(absl::FunctionRef<void(absl::string_view)> on_line);
  const std::optional<Ending>& ending() const { return ending_; }
  // Whether a signal has stopped it (SIGSTOP, say): it runs no more until it
  // gets SIGCONT.
  bool IsStopped() const;

  // To the whole group; nothing once the process has ended.
  void Signal(int signal);
  // To the process alone: what it has started, it may need to end well.
  void SignalAlone(int signal);
  // The same, unless it would die of it; whether it was sent.
  bool SignalIfHandled(int signal);

 private:
  Child(Command command, pid_t pid, int output_fd, int exit_fd,
        ProcessGroups* groups)
      : command_(std::move(command)),
        pid_(pid),
        groups_(groups),
        output_fd_(output_fd),
        exit_fd_(exit_fd) {}

  // Kills what is left of its group. Blocks until the process has ended.
  Ending KillAndReap();
  void CloseOutput();

  const Command command_;
  const pid_t pid_;
  ProcessGroups* const groups_;  // null: nobody else kills it
  int output_fd_;
  const int exit_fd_;
  LineBuffer lines_;
  std::optional<Ending> ending_;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_CHILD_H_
