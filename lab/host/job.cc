#include "lab/host/job.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/host_cores.h"
#include "lab/host/arguments.h"
#include "lab/host/job_key.h"
#include "lab/host/temp_dir.h"

namespace psring {
namespace {

constexpr const char* kLaunchersFlags[] = {
    "--mode",     "--coordinator",           "--workers", "--host-coordinator",
    "--servers",  "--coordinator-port-file", "--rank",    "--metrics-dir",
    "--timeline", "--tensorboard",           "--page",    "--page-token-file"};

// A command line that begins with what leads to its process's host.
Command StartOf(const std::string& name, const std::string& binary,
                const std::vector<std::vector<std::string>>& prefixes,
                int rank) {
  Command command = {name, {}};
  if (!prefixes.empty()) command.argv = prefixes[rank];
  command.argv.push_back(binary);
  return command;
}

// What every process is told.
void AppendCommonFlags(const Job& job, int rank, int coordinator_port,
                       std::vector<std::string>* argv) {
  argv->push_back(absl::StrCat("--coordinator=", job.coordinator_address, ":",
                               coordinator_port));
  argv->push_back(absl::StrCat("--rank=", rank));
  argv->push_back(absl::StrCat("--workers=", job.workers));
  if (job.mode == "ps") {
    argv->push_back(absl::StrCat("--servers=", job.servers));
  }
  if (!job.metrics_dir.empty()) {
    argv->push_back(absl::StrCat("--metrics-dir=", job.metrics_dir));
  }
  if (!job.tensorboard.empty()) {
    argv->push_back(absl::StrCat("--tensorboard=", job.tensorboard));
  }
  if (!job.timeline_dir.empty()) {
    argv->push_back(absl::StrCat("--timeline=", job.timeline_dir));
  }
}

// Of the whole job, so that servers have them from the workers' flags.
constexpr const char* kTimeouts[] = {"--join-timeout", "--heartbeat-timeout",
                                     "--step-timeout", "--progress-timeout"};

// For worker 0 of a ring to load what it trains, before it joins.
constexpr absl::Duration kJoinTimeout = absl::Seconds(60);  // its default

absl::Duration JoinTimeout(const Job& job) {
  double seconds = 0;
  return absl::SimpleAtod(ValueOf(ArgsOf(job.worker_flags, "--join-timeout")),
                          &seconds)
             ? absl::Seconds(seconds)
             : kJoinTimeout;
}

Command ServerCommand(const Job& job, int rank, int coordinator_port) {
  Command command = StartOf(absl::StrCat("ps ", rank), job.ps_binary,
                            job.server_prefixes, rank);
  AppendCommonFlags(job, rank, coordinator_port, &command.argv);
  for (const char* timeout : kTimeouts) {
    if (HasFlag(job.server_flags, timeout)) continue;
    for (std::string& arg : ArgsOf(job.worker_flags, timeout)) {
      command.argv.push_back(std::move(arg));
    }
  }
  command.argv.insert(command.argv.end(), job.server_flags.begin(),
                      job.server_flags.end());
  return command;
}

Command WorkerCommand(const Job& job, int rank, int coordinator_port) {
  Command command = StartOf(absl::StrCat("worker ", rank), job.worker_binary,
                            job.worker_prefixes, rank);
  command.argv.push_back(absl::StrCat("--mode=", job.mode));
  AppendCommonFlags(job, rank, coordinator_port, &command.argv);
  if (job.threads_per_worker >= 0 && !HasFlag(job.worker_flags, "--threads")) {
    const int threads = job.threads_per_worker > 0
                            ? job.threads_per_worker
                            : std::max(1, HostCores() / job.workers);
    command.argv.push_back(absl::StrCat("--threads=", threads));
  }
  command.argv.insert(command.argv.end(), job.worker_flags.begin(),
                      job.worker_flags.end());
  return command;
}

// Nothing until the file is there, which appears as a whole.
std::optional<int> ReadPort(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  int port = 0;
  if (!std::getline(file, text) || !absl::SimpleAtoi(text, &port)) return {};
  return port;
}

// `failed`: what has kept the host from its port. The folder of the port's file
// is this program's choice, so what the process says of it is no remedy.
absl::Status WithPlaceOfPort(const absl::Status& failed,
                             const Supervisor& supervisor) {
  if (!supervisor.first_failure().has_value()) return failed;
  for (const std::string& line : supervisor.first_failure()->last_lines) {
    if (!absl::StrContains(line, "--coordinator-port-file: cannot write")) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        failed.message(),
        ". It could not write its port into psring's temporary folder: set "
        "TMPDIR to a folder that it can write and that has room"));
  }
  return failed;
}

}  // namespace

absl::Status CheckFlags(const std::vector<std::string>& flags,
                        const std::vector<std::string>& own) {
  for (const char* flag : kLaunchersFlags) {
    if (!HasFlag(flags, flag)) continue;
    const bool owns = std::find(own.begin(), own.end(), flag) != own.end();
    return absl::InvalidArgumentError(absl::StrCat(
        flag, owns ? " is a flag of the whole job: give it before `--`"
                   : " is what this command gives to every process: leave it "
                     "out"));
  }
  return absl::OkStatus();
}

Command HostCommand(const Job& job, const std::string& port_file) {
  Command command =
      job.mode == "ps" ? ServerCommand(job, 0, 0) : WorkerCommand(job, 0, 0);
  command.argv.push_back("--host-coordinator");
  command.argv.push_back(absl::StrCat("--coordinator-port-file=", port_file));
  if (!job.page.empty()) {
    command.argv.push_back(absl::StrCat("--page=", job.page));
  }
  if (!job.page_token_file.empty()) {
    command.argv.push_back(
        absl::StrCat("--page-token-file=", job.page_token_file));
  }
  return command;
}

std::vector<Command> OtherCommands(const Job& job, int coordinator_port) {
  const bool ps = job.mode == "ps";
  std::vector<Command> commands;
  for (int rank = 1; ps && rank < job.servers; ++rank) {
    commands.push_back(ServerCommand(job, rank, coordinator_port));
  }
  for (int rank = ps ? 0 : 1; rank < job.workers; ++rank) {
    commands.push_back(WorkerCommand(job, rank, coordinator_port));
  }
  return commands;
}

absl::StatusOr<HostPort> StartJob(const Job& job, Supervisor& supervisor,
                                  absl::Duration timeout) {
  auto dir = TempDir::Create();
  if (!dir.ok()) return dir.status();
  if (job.mode == "ring") timeout = std::max(timeout, JoinTimeout(job));
  const std::string port_file = absl::StrCat(dir->path(), "/port");
  const auto key = JobKey::Create(job.security);
  if (!key.ok()) return key.status();
  Command host = HostCommand(job, port_file);
  key->GiveTo(host);
  if (absl::Status s = supervisor.Start(host); !s.ok()) return s;
  std::optional<int> port;
  absl::Status s = supervisor.RunUntil(
      [&] { return (port = ReadPort(port_file)).has_value(); },
      Now() + timeout);
  if (absl::IsDeadlineExceeded(s)) {
    return absl::DeadlineExceededError(absl::StrCat(
        host.name, " has not opened the coordinator's port within ",
        absl::FormatDuration(timeout), ": ", host.argv[0],
        job.mode == "ring" ? ". If it loads for longer, allow more: -- "
                             "--join-timeout=SECONDS"
                           : ""));
  }
  if (!s.ok()) return WithPlaceOfPort(s, supervisor);
  for (Command& command : OtherCommands(job, *port)) {
    key->GiveTo(command);
    if (s = supervisor.Start(std::move(command)); !s.ok()) return s;
  }
  return HostPort{job.coordinator_address, *port};
}

}  // namespace psring
