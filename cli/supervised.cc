#include "cli/supervised.h"

#include <signal.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/command.h"
#include "common/clock.h"
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
}

namespace {

// Of output whose reader has stopped; what it does not see goes to --log-dir
// and into errors all the same.
constexpr size_t kMostUnshown = 16 << 20;
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

// The exit code, after saying how a job has ended: whether all processes could
// be started, what failed first, and what the user's signal was, 0 for none.
int ExitOf(const std::string& command, const SupervisedFlags& flags,
           const Supervisor& supervisor, const absl::Status& started,
           const std::optional<Failure>& failure, int signal) {
  if (signal == 0 && failure) {
    return Fail(command, absl::AbortedError(ToString(*failure)),
                failure->ending.shell_code());
  }
  if (AsksSoftly(signal) && started.ok() && !failure) {
    LogBare(absl::StrCat(command, ": all processes have ended well after SIG",
                         sigabbrev_np(signal), "\n"));
    return flags.stopped_exit_code;
  }
  const bool ended_by_themselves =
      started.ok() && failure && failure->ending.signal == 0;
  if (AsksSoftly(signal) && supervisor.killed().empty() &&
      ended_by_themselves) {
    LogBare(absl::StrCat(command, ": all processes have ended after SIG",
                         sigabbrev_np(signal), "; ", failure->name, ": ",
                         ToString(failure->ending), "\n"));
    return failure->ending.shell_code();
  }
  if (AsksSoftly(signal) && !supervisor.killed().empty()) {
    return Fail(
        command,
        absl::CancelledError(absl::StrCat(
            "interrupted by SIG", sigabbrev_np(signal), "; killed after ",
            flags.grace_period_s, " s (--grace-period), not having ended: ",
            absl::StrJoin(supervisor.killed(), ", "))),
        128 + signal);
  }
  return ExitCode(command, started, signal);
}

// Who reads slowly reads to the end, as with any program, unless the user wants
// an end.
void AwaitReader(LiveBlock& block, const SignalWatcher& signals) {
  while (signals.received() == 0 && !block.Flush(absl::Milliseconds(100))) {
  }
}

}  // namespace

int RunSupervised(
    const std::string& command, const SupervisedFlags& flags,
    const Security& security,
    const std::function<absl::StatusOr<HostPort>(Supervisor&)>& start) {
  IgnoreBrokenPipes();
  AllowAllFiles();
  Cancellation cancellation;
  std::atomic<bool> asked = false;  // by SIGUSR1
  // The processes die with this one, but not what they have started.
  ProcessGroups groups;
  SignalActions actions = ActionsOn(groups);
  actions.on_user_signal = [&] { asked = true; };
  SignalWatcher signals(cancellation, std::move(actions));
  auto printer = OutputPrinter::Create(stdout, flags.log_dir);
  if (!printer.ok()) return Fail(command, printer.status());
  ShownProgress progress(*printer);
  SupervisorOptions options;
  options.stops_softly = [&] {
    const int signal = signals.received();
    return signal != 0 ? AsksSoftly(signal) : printer->block().closed();
  };
  options.soft_grace = absl::Seconds(flags.grace_period_s);
  options.groups = &groups;
  options.on_line = [&](const std::string& name, absl::string_view line) {
    printer->Print(name, line);
  };
  options.unshown = [&] {
    const LiveBlock& block = printer->block();
    return SupervisorOptions::Unshown{block.blocked_fd(),
                                      block.left() > kMostUnshown};
  };
  Supervisor* processes = nullptr;
  bool hopeless = false, told = false;
  options.on_tick = [&] {
    printer->block().Flush();
    progress.Show();
    if (printer->block().closed()) {
      cancellation.Cancel(absl::CancelledError("nobody reads the output"));
    }
    if (asked.exchange(false)) AskForStacks(*processes, *printer);
    const std::optional<Failure>& failure = processes->first_failure();
    // It has said nothing, and the others take some seconds to miss it.
    const bool silent = failure && failure->ending.signal != 0 &&
                        cancellation.status().ok() && !processes->AllEnded();
    if (silent && !std::exchange(told, true)) {
      printer->block().Print(absl::StrCat("[job] ", failure->name, " (pid ",
                                          failure->pid, ") was ",
                                          ToString(failure->ending), "\n"));
    }
    // The others would wait for the one that has failed until they may not.
    if (!hopeless && failure && progress.FormingSince(failure->seen)) {
      hopeless = true;
      processes->Stop();
    }
  };
  Supervisor supervisor(cancellation, options);
  processes = &supervisor;
  const auto coordinator = start(supervisor);
  const absl::Status started = coordinator.status();
  // Processes that Stop() ends are not why they could not all start.
  std::optional<Failure> failure = supervisor.first_failure();
  if (!started.ok()) {
    supervisor.Stop();
  } else {
    progress.Watch(security, *coordinator);
  }
  supervisor.Wait();
  AwaitReader(printer->block(), signals);
  progress.End();
  if (started.ok()) failure = supervisor.first_failure();
  return ExitOf(command, flags, supervisor, started, failure,
                signals.received() == 0 && printer->block().closed()
                    ? SIGPIPE
                    : signals.received());
}

}  // namespace psring
