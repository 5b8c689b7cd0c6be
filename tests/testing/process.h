// Real processes in a test: start one, read what it prints, signal it, await
// its end.
#ifndef PSRING_TESTS_TESTING_PROCESS_H_
#define PSRING_TESTS_TESTING_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

struct ProcessOptions {
  std::string cwd;  // empty: the test's own
  // Added to the test's environment, or in place of a variable of that name.
  // GPUs are hidden.
  std::vector<std::pair<std::string, std::string>> env;
};

// One process, leader of a group of its own. It is killed with its group when
// this object ends, and when the thread that started it does. One thread's own.
class Process {
 public:
  // argv[0] is a path. An error when the program cannot be executed.
  static absl::StatusOr<Process> Start(std::vector<std::string> argv,
                                       const ProcessOptions& options = {});

  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  pid_t pid() const { return pid_; }

  // Both streams so far, merged. It can be as long as it likes: the process
  // never blocks on it.
  std::string Output() const;

  // False when `deadline` comes or the process ends before it printed `text`.
  bool WaitForOutput(const std::string& text, Time deadline);

  // To the process alone; nothing once it has been waited for.
  void Signal(int signal);

  // The exit code, 128 + the signal that killed it, or -1 when it still runs at
  // `deadline`.
  int Wait(Time deadline);

 private:
  Process(pid_t pid, int exit_fd, int output_fd)
      : pid_(pid), exit_fd_(exit_fd), output_fd_(output_fd) {}

  // Whether the process ends within `timeout`.
  bool Ends(absl::Duration timeout);
  void Kill();

  pid_t pid_ = -1;
  int exit_fd_ = -1;  // readable once the process has ended
  int output_fd_ = -1;
  std::optional<int> code_;
};

struct Ran {
  int code = 0;  // as Process::Wait
  std::string output;
};

// Runs a program to its end. -1 with what was printed until then when it has
// not ended by `deadline`, or with the reason when it cannot be started.
Ran RunProcess(std::vector<std::string> argv, Time deadline,
               const ProcessOptions& options = {});

// The programs, from the runfiles: a test that calls one of these has //ps,
// //worker or //cli:psring in its data. `psring launch` needs all three.
std::string PsBinary();
std::string WorkerBinary();
std::string PsringBinary();

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_PROCESS_H_
