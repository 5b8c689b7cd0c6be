#include "cli/supervised.h"

#include <optional>

#include "cli/command.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "lab/host/output_printer.h"

namespace psring {

int RunSupervised(const std::string& command, const std::string& log_dir,
                  const std::function<absl::Status(Supervisor&)>& start) {
  Cancellation cancellation;
  SignalWatcher signals(cancellation);
  auto printer = OutputPrinter::Create(stdout, log_dir);
  if (!printer.ok()) return Fail(command, printer.status());
  SupervisorOptions options;
  options.on_line = [&](const std::string& name, absl::string_view line) {
    printer->Print(name, line);
  };
  Supervisor supervisor(cancellation, options);
  const absl::Status started = start(supervisor);
  // Processes that Stop() ends are not why they could not all start.
  std::optional<Failure> failure = supervisor.first_failure();
  if (!started.ok()) supervisor.Stop();
  supervisor.Wait();
  if (started.ok()) failure = supervisor.first_failure();
  const int signal = signals.received();
  if (signal == 0 && failure) {
    return Fail(command, absl::AbortedError(ToString(*failure)),
                failure->ending.shell_code());
  }
  return ExitCode(command, started, signal);
}

}  // namespace psring
