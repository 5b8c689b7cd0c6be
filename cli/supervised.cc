#include "cli/supervised.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/command.h"
#include "common/clock.h"
#include "common/counted.h"
#include "common/log.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "common/process/open_files.h"
#include "lab/host/job_watch.h"
#include "lab/host/output_printer.h"
#include "lab/host/process_groups.h"
#include "lab/page/job_lines.h"

namespace psring {

void SupervisedFlags::AddTo(CommandLine& line) {
  line.Add("--log-dir", log_dir, "Folder that keeps every process's output");
  line.Add("--grace-period", grace_period_s,
           "After SIGTERM, which the workers get too: seconds for them to save "
           "and end before they are killed. A Ctrl-C meanwhile kills them")
      .Range(0.1, 86400.0);
  line.Add("--stopped-exit-code", stopped_exit_code,
           "Exit code after SIGTERM, where all processes have ended well: "
           "another than 0 tells an engine such as Kubernetes or Slurm that "
           "the training is not over")
      .Range(0, 125);
  line.Add("--max-restarts", max_restarts,
           "Times that the whole job is started again after a process of it "
           "has failed or was killed")
      .Range(0, 1000000);
}

namespace {

// Of output whose reader has stopped; what it does not see goes to --log-dir
// and into errors all the same.
constexpr size_t kMostUnshown = 16 << 20;
// For a job to end well whose reader has seen enough (`| grep -q done`).
constexpr absl::Duration kUnreadGrace = absl::Seconds(5);
// So that a job that fails at once does not keep a host busy, and that other
// hosts' processes have ended, too.
constexpr absl::Duration kRestartDelay = absl::Seconds(1);
// How long others have ended before those are named that have not.
constexpr absl::Duration kTellRemaining = absl::Seconds(10);
// How often a file gets a line of how far the job is.
constexpr absl::Duration kSayEvery = absl::Seconds(60);

// Shows how far the job of a coordinator is, from its start on.
class ShownProgress {
 public:
  explicit ShownProgress(OutputPrinter& printer) : printer_(printer) {}

  // A job that cannot be watched trains all the same.
  void Watch(const Security& security, const HostPort& coordinator) {
    const bool live = printer_.block().live();
    auto watch = JobWatch::Start(security, coordinator,
                                 live ? JobWatch::Text(JobBlock) : JobLine);
    if (watch.ok()) watch_ = *std::move(watch);
  }

  void Show() {
    if (watch_ == nullptr) return;
    std::vector<std::string> lines = watch_->lines();
    if (printer_.block().live()) {
      printer_.block().Draw(std::move(lines));
    } else if (Now() >= next_line_ && !lines.empty()) {
      next_line_ = Now() + kSayEvery;
      printer_.block().Print(absl::StrCat("[job] ", lines[0], "\n"));
    }
  }

  // Whether some process had yet to join after that.
  bool FormingSince(Time since) const {
    return watch_ != nullptr && watch_->FormingSince(since);
  }

  void End() {
    watch_.reset();
    printer_.block().Draw({});
  }

 private:
  OutputPrinter& printer_;
  std::unique_ptr<JobWatch> watch_;
  Time next_line_ = Now() + kSayEvery;
};

// All processes write what their threads do, if they can.
void AskForStacks(Supervisor& supervisor, OutputPrinter& printer) {
  for (const std::string& name : supervisor.SignalThoseWhoHandle(SIGUSR1)) {
    printer.block().Print(absl::StrCat(
        "[job] ", name, " has ended, or does nothing with SIGUSR1\n"));
  }
}

// How one attempt has ended.
struct Outcome {
  absl::Status started;  // whether all processes could be
  std::optional<Failure> failure;
  std::vector<std::string> killed;  // as they did not end
  bool had_grace = true;            // whether these had --grace-period
};

// The exit code, after saying how a job has ended. `signal`: the user's, 0 for
// none.
int ExitOf(const std::string& command, const SupervisedFlags& flags,
           const Outcome& outcome, int signal) {
  const auto& [started, failure, killed, had_grace] = outcome;
  if (signal == 0 && failure) {
    std::string text = ToString(*failure);
    // A remedy that the process itself could not know.
    if (absl::IsFailedPrecondition(started)) {
      absl::StrAppend(&text, "\n", started.message());
    }
    return Fail(command, absl::AbortedError(text),
                failure->ending.shell_code());
  }
  if (AsksSoftly(signal) && started.ok() && !failure) {
    LogBare(absl::StrCat(command, ": all processes have ended well after SIG",
                         sigabbrev_np(signal), "\n"));
    return flags.stopped_exit_code;
  }
  const bool ended_by_themselves =
      started.ok() && failure && failure->ending.signal == 0;
  if (AsksSoftly(signal) && killed.empty() && ended_by_themselves) {
    LogBare(absl::StrCat(command, ": all processes have ended after SIG",
                         sigabbrev_np(signal), "; ", failure->name, ": ",
                         ToString(failure->ending), "\n"));
    return failure->ending.shell_code();
  }
  if (AsksSoftly(signal) && !killed.empty()) {
    return Fail(
        command,
        absl::CancelledError(absl::StrCat(
            "interrupted by SIG", sigabbrev_np(signal),
            had_grace ? absl::StrCat("; killed after ", flags.grace_period_s,
                                     " s (--grace-period), not having ended: ")
                      : "; killed before all processes had joined: ",
            ShortList(killed))),
        128 + signal);
  }
  return ExitCode(command, started, signal);
}

// Whether to start the processes again, if attempts are left. A restart that
// could not start may find its network or its port again later.
bool MayStartAgain(const Outcome& outcome, const Attempt& attempt) {
  if (outcome.failure) return outcome.failure->ending.shell_code() != 2;
  return attempt.restarts > 0 && !outcome.started.ok();
}

std::string WhyAgain(const Outcome& outcome) {
  return outcome.failure ? FirstLine(*outcome.failure)
                         : absl::StrCat("the job could not start: ",
                                        std::string(outcome.started.message()));
}

// The processes, each time that they are started, and what the user has of
// them.
class SupervisedJob {
 public:
  SupervisedJob(const SupervisedFlags& flags, const Security& security,
                OutputPrinter& printer)
      : flags_(flags), security_(security), printer_(printer) {
    SignalActions actions = ActionsOn(groups_);
    actions.on_user_signal = [this] { asked_ = true; };
    signals_.emplace(cancellation_, std::move(actions));
  }

  Outcome RunOnce(const StartProcesses& start, const Attempt& attempt);

  // Returns when it is time to start again, or an error: not at all.
  absl::Status AwaitRestart() const {
    return cancellation_.SleepUntil(Now() + kRestartDelay);
  }

  // Who reads slowly reads to the end, as with any program, unless the user
  // wants an end.
  void AwaitReader() {
    while (signals_->received() == 0 &&
           !printer_.block().Flush(absl::Milliseconds(100))) {
    }
  }

  const Cancellation& cancellation() const { return cancellation_; }

  // What has ended it: the user's signal, SIGPIPE where nobody reads the
  // output, 0 for neither.
  int signal() const {
    const int received = signals_->received();
    return received == 0 && printer_.block().closed() ? SIGPIPE : received;
  }

 private:
  SupervisorOptions Options();
  void OnTick(Supervisor& supervisor, ShownProgress& progress);
  void LookForReader();
  void TellWhoRemains(const Supervisor& supervisor);

  const SupervisedFlags& flags_;
  const Security& security_;
  OutputPrinter& printer_;
  Cancellation cancellation_;
  std::atomic<bool> asked_ = false;  // by SIGUSR1
  // The processes die with this one, but not what they have started.
  ProcessGroups groups_;
  std::optional<SignalWatcher> signals_;
  // Of this attempt: whether its failure leaves the others nothing to wait for,
  // and whether it was told.
  bool hopeless_ = false, told_ = false;
  // The same: since when some are waited for whose others have ended, and
  // whether that was told.
  std::optional<Time> remaining_since_;
  bool told_remaining_ = false;
  std::optional<Time> unread_since_;  // without a reader of the output
};

SupervisorOptions SupervisedJob::Options() {
  SupervisorOptions options;
  options.stops_softly = [this] {
    const int signal = signals_->received();
    return signal != 0 ? AsksSoftly(signal) : printer_.block().closed();
  };
  options.soft_grace = absl::Seconds(flags_.grace_period_s);
  options.groups = &groups_;
  options.on_line = [this](const std::string& name, absl::string_view line) {
    printer_.Print(name, line);
  };
  options.unshown = [this] {
    const LiveBlock& block = printer_.block();
    return SupervisorOptions::Unshown{block.blocked_fd(),
                                      block.left() > kMostUnshown};
  };
  return options;
}

// A job that prints nothing does not find out by itself.
void SupervisedJob::LookForReader() {
  const Time now = Now();
  if (printer_.block().HasReader()) {
    unread_since_.reset();
  } else if (now - unread_since_.emplace(unread_since_.value_or(now)) >
             kUnreadGrace) {
    printer_.block().Close();
  }
}

void SupervisedJob::TellWhoRemains(const Supervisor& supervisor) {
  if (told_remaining_) return;
  const std::vector<std::string> names = supervisor.Remaining();
  if (names.empty() || !cancellation_.status().ok()) {
    return remaining_since_.reset();
  }
  const Time now = Now();
  if (!remaining_since_) remaining_since_ = now;
  if (now - *remaining_since_ < kTellRemaining) return;
  told_remaining_ = true;
  printer_.block().Print(absl::StrCat("[job] waits for ", ShortList(names),
                                      "; the others have ended. `kill -USR1 ",
                                      getpid(),
                                      "` makes them print what they do\n"));
}

void SupervisedJob::OnTick(Supervisor& supervisor, ShownProgress& progress) {
  printer_.block().Flush();
  progress.Show();
  LookForReader();
  if (printer_.block().closed()) {
    cancellation_.Cancel(absl::CancelledError("nobody reads the output"));
  }
  if (asked_.exchange(false)) AskForStacks(supervisor, printer_);
  TellWhoRemains(supervisor);
  const std::optional<Failure>& failure = supervisor.first_failure();
  // It has said nothing, and the others take some seconds to miss it.
  const bool silent = failure && failure->ending.signal != 0 &&
                      cancellation_.status().ok() && !supervisor.AllEnded();
  if (silent && !std::exchange(told_, true)) {
    printer_.block().Print(absl::StrCat("[job] ", NameOf(*failure), " was ",
                                        ToString(failure->ending), "\n"));
  }
  // The others would wait for the one that has failed until they may not.
  if (!hopeless_ && failure && progress.FormingSince(failure->seen)) {
    hopeless_ = true;
    supervisor.Stop(kFormingGrace);
  }
}

Outcome SupervisedJob::RunOnce(const StartProcesses& start,
                               const Attempt& attempt) {
  hopeless_ = told_ = told_remaining_ = false;
  remaining_since_.reset();
  ShownProgress progress(printer_);
  Supervisor* processes = nullptr;
  SupervisorOptions options = Options();
  options.on_tick = [&] { OnTick(*processes, progress); };
  Supervisor supervisor(cancellation_, options);
  processes = &supervisor;
  const auto coordinator = start(supervisor, attempt);
  // Processes that Stop() ends are not why they could not all start.
  std::optional<Failure> failure = supervisor.first_failure();
  if (absl::IsCancelled(coordinator.status())) {
    supervisor.Stop(kFormingGrace);
  } else if (!coordinator.ok()) {
    supervisor.Stop();
  } else {
    progress.Watch(security_, *coordinator);
  }
  supervisor.Wait();
  progress.End();
  if (coordinator.ok()) failure = supervisor.first_failure();
  return {coordinator.status(), std::move(failure), supervisor.killed(),
          coordinator.ok() && !hopeless_};
}

}  // namespace

int RunSupervised(const std::string& command, const SupervisedFlags& flags,
                  const Security& security, const StartProcesses& start,
                  const OnFailure& on_failure) {
  IgnoreBrokenPipes();
  AllowAllFiles();
  auto printer = OutputPrinter::Create(stdout, flags.log_dir);
  if (!printer.ok()) return Fail(command, printer.status());
  SupervisedJob job(flags, security, *printer);
  Attempt attempt = {.restarts = 0,
                     .has_next = flags.max_restarts > 0,
                     .cancellation = &job.cancellation()};
  while (true) {
    const Outcome outcome = job.RunOnce(start, attempt);
    // What the user has ended did not fail.
    if (outcome.failure && on_failure && job.signal() == 0) {
      on_failure(*outcome.failure);
    }
    const bool again = attempt.has_next && MayStartAgain(outcome, attempt);
    if (!again) job.AwaitReader();
    const int signal = job.signal();  // one that comes later has ended nothing
    if (!again || !job.AwaitRestart().ok()) {
      return ExitOf(command, flags, outcome, signal);
    }
    ++attempt.restarts;
    attempt.has_next = attempt.restarts < flags.max_restarts;
    printer->block().Print(absl::StrCat(
        "[job] ", WhyAgain(outcome), "; starts the job again (restart ",
        attempt.restarts, " of ", flags.max_restarts, ")\n"));
  }
}

}  // namespace psring
