#include "cli/launch.h"

#include <algorithm>
#include <iostream>
#include <string>

#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "lab/host/job.h"
#include "lab/host/output_printer.h"
#include "lab/host/supervisor.h"

namespace psring {
namespace {

constexpr char kDescription[] =
    "Starts a job's processes on this host and shows their output, each line "
    "after its process's name. What follows `--` goes to the workers.";

constexpr char kExample[] =
    "Example: two servers, four workers, ten epochs of the embedded digits\n"
    "  psring launch --mode=ps --servers=2 --workers=4 --log-dir=logs -- \\\n"
    "      --model=lenet --data=digits --sync=bsp --epochs=10\n"
    "All flags of a worker: psring worker --help";

struct LaunchFlags {
  Job job;
  Binaries binaries;
  std::string log_dir;
};

void AddFlags(CLI::App& app, LaunchFlags& flags) {
  Job& job = flags.job;
  app.add_option("--mode", job.mode, "Topology; ring: no servers")
      ->check(CLI::IsMember({"ps", "ring"}))
      ->capture_default_str();
  app.add_option("--servers", job.servers, "Number of servers (--mode=ps)")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--workers", job.workers, "Number of workers")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--threads-per-worker", job.threads_per_worker,
                 "Compute threads of each worker; default: its share of this "
                 "host's cores")
      ->check(CLI::Range(1, 1024));
  app.add_option("--server-flag", job.server_flags,
                 "Flag for every server, e.g. "
                 "--server-flag=--shard-threads=2; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--metrics-dir", job.metrics_dir,
                 "Folder for every process's metrics (JSON lines)");
  app.add_option("--timeline", job.timeline_dir,
                 "Folder for the record of what every process does when: see "
                 "psring timeline");
  app.add_option("--log-dir", flags.log_dir,
                 "Folder that keeps every process's output");
  AddBinaryFlags(app, flags.binaries);
  app.footer(kExample);
}

int Report(const absl::Status& started, const Supervisor& supervisor,
           int signal) {
  if (signal != 0) {
    std::cerr << "psring launch: interrupted; all processes have ended"
              << std::endl;
    return 128 + signal;
  }
  if (const auto& failure = supervisor.first_failure()) {
    std::cerr << "psring launch: " << ToString(*failure) << std::endl;
    return failure->ending.shell_code();
  }
  if (!started.ok()) {
    std::cerr << "psring launch: " << started.message() << std::endl;
    return kExitFailed;
  }
  return 0;
}

int Run(const LaunchFlags& flags) {
  Cancellation cancellation;
  SignalWatcher signals(cancellation);
  auto printer = OutputPrinter::Create(stdout, flags.log_dir);
  if (!printer.ok()) {
    std::cerr << "psring launch: " << printer.status().message() << std::endl;
    return kExitFailed;
  }
  SupervisorOptions options;
  options.on_line = [&](const std::string& name, absl::string_view line) {
    printer->Print(name, line);
  };
  Supervisor supervisor(cancellation, options);
  const absl::Status started = StartJob(flags.job, supervisor);
  if (!started.ok()) supervisor.Stop();
  supervisor.Wait();
  return Report(started, supervisor, signals.received());
}

}  // namespace

int Launch(const Args& args) {
  CLI::App app(kDescription, "psring launch");
  LaunchFlags flags;
  AddFlags(app, flags);
  const auto separator = std::find(args.begin(), args.end(), "--");
  if (auto code = ParseFlags(app, Args(args.begin(), separator))) return *code;
  if (separator != args.end()) {
    flags.job.worker_flags.assign(separator + 1, args.end());
  }
  if (flags.job.mode == "ring" && app.count("--servers") > 0) {
    return UsageError(app, "--servers: --mode=ring has no servers");
  }
  for (const Args* passed :
       {&flags.job.worker_flags, &flags.job.server_flags}) {
    if (absl::Status s = CheckFlags(*passed); !s.ok()) {
      return UsageError(app, std::string(s.message()));
    }
  }
  flags.job.ps_binary = flags.binaries.ps;
  flags.job.worker_binary = flags.binaries.worker;
  return Run(flags);
}

}  // namespace psring
