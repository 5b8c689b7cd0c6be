// Runs a job's processes on this host: hands on their output, notices the first
// failure, and sees to it that all of them end.
#ifndef PSRING_LAB_HOST_SUPERVISOR_H_
#define PSRING_LAB_HOST_SUPERVISOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "lab/host/child.h"
#include "lab/host/process_groups.h"

namespace psring {

// For Stop(), of processes that have trained nothing yet. A server with a
// coordinator would wait for those who may still come.
inline constexpr absl::Duration kFormingGrace = absl::Seconds(1);

struct SupervisorOptions {
  // After the first failure: how long the others have to notice it,
  // before SIGTERM. Heartbeats tell them within 10 s.
  absl::Duration settle = absl::Seconds(15);
  // The same where nobody is left but those whom the failure has told of: they
  // do not respond, or would have noticed it themselves.
  absl::Duration settle_of_blamed = absl::Seconds(6);
  // How long those who are left may be stopped (SIGSTOP) where others have
  // ended well, before SIGKILL: they do not end by themselves, and nobody is
  // left who would miss them.
  absl::Duration settle_of_stopped = absl::Seconds(10);
  // The time from SIGTERM to SIGKILL.
  absl::Duration terminate_grace = absl::Seconds(5);
  // The time from the SIGINT that a cancellation sends to SIGKILL.
  absl::Duration interrupt_grace = absl::Seconds(10);
  // Whether a cancellation is SIGTERM, after which workers may save and end
  // well: they get it in place of SIGINT, and servers end with them. Empty:
  // never.
  std::function<bool()> stops_softly;
  // The time from that SIGTERM to SIGKILL.
  absl::Duration soft_grace = absl::Seconds(30);
  // How many last lines of a process are kept for its failure.
  size_t tail_lines = 20;
  // Has the processes' groups, for another thread to kill; outlives the
  // supervisor. Null: no other thread does.
  ProcessGroups* groups = nullptr;
  // Every line of output, without its newline. May be empty.
  std::function<void(const std::string& name, absl::string_view line)> on_line;
  // Of what on_line got: what to poll for POLLOUT while some of it could not be
  // shown yet, and whether that is so much that no more is read for now: those
  // who have much to say then wait, unless they are to end. May be empty.
  struct Unshown {
    int fd = -1;
    bool much = false;
  };
  std::function<Unshown()> unshown;
  // Called at least every `tick` while waiting. May be empty.
  std::function<void()> on_tick;
  absl::Duration tick = absl::Milliseconds(100);
};

// The process that failed first in time.
struct Failure {
  std::string name;
  pid_t pid = 0;
  Ending ending;
  std::vector<std::string> last_lines;
  Time seen;  // that it has ended
  // Whether the kernel has killed it, or another process of this host, because
  // memory was short.
  bool memory_was_short = false;
  // Whether it was stopped (SIGSTOP) when others had ended, and was killed.
  bool was_stopped = false;
};

// "worker 1 (pid 4711)"; the same and " failed: exit code 7", and why, where
// the kernel tells.
std::string NameOf(const Failure& failure);
std::string FirstLine(const Failure& failure);

// Several lines for people, the last lines of output indented.
std::string ToString(const Failure& failure);

// One thread's own, which may not end before it.
class Supervisor {
 public:
  // `cancellation` makes it end every process; it must outlive this.
  Supervisor(const Cancellation& cancellation, SupervisorOptions options);

  absl::Status Start(Command command);

  // Serves the processes until done() holds. An error when cancelled, where
  // done() holds as well; when a process failed, when all have ended and when
  // `deadline` passed.
  absl::Status RunUntil(const std::function<bool()>& done, Time deadline);

  // Serves the processes until all have ended, which `settle` and the graces
  // bound once one failed, those who are left are stopped or a cancellation
  // came.
  void Wait();

  // SIGTERM to everybody, SIGKILL after `grace`, by default terminate_grace;
  // Wait() then returns.
  void Stop(std::optional<absl::Duration> grace = std::nullopt);
  void SignalAll(int signal);
  // To the processes that do something with it: each alone, without those that
  // it has started. Returns the names of the others.
  std::vector<std::string> SignalThoseWhoHandle(int signal);

  bool AllEnded() const;
  // "worker 1 (pid 4711)" of each that still runs where others have ended and
  // nobody has failed; empty where nobody has ended.
  std::vector<std::string> Remaining() const;
  // The id of the process of that name; 0 without such a process.
  pid_t PidOf(const std::string& name) const;
  // "worker 1 (pid 4711)" of each that had to be killed, as it did not end.
  const std::vector<std::string>& killed() const { return killed_; }
  // Of the process that failed first, or of one whose failure that one has told
  // of in its last lines, by its pid.
  const std::optional<Failure>& first_failure() const { return failure_; }

 private:
  struct Member {
    std::unique_ptr<Child> child;
    std::deque<std::string> last_lines;
  };
  struct PlannedSignal {
    Time when;
    int signal;
  };

  void ServeOnce();
  void PollMembers(Time deadline);
  void CheckEnds();
  void OnLine(Member& member, absl::string_view line);
  bool IsBlamed(const Member& member) const;
  void OnFailure(const Member& member);
  void OnCancelled();
  // Where nobody is left but those whom the first failure has told of.
  void StopTheBlamed();
  // Who still runs; empty where nobody has ended.
  std::vector<const Member*> LeftBehind() const;
  // Where others have ended well and nobody is left but those who are stopped.
  void KillTheStopped();
  void SendPlannedSignals();

  const Cancellation& cancellation_;
  const SupervisorOptions options_;
  std::vector<Member> members_;
  std::optional<Failure> failure_;
  bool cancelled_ = false;
  std::deque<PlannedSignal> plan_;     // by time
  bool signals_sent_ = false;          // of them, any
  std::optional<Time> stopped_since_;  // all who are left; null: not all are
  bool kills_stopped_ = false;
  std::vector<std::string> killed_;
  const int64_t killed_for_memory_;  // processes of this host, before
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_SUPERVISOR_H_
