#include "cli/run.h"

#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/command.h"
#include "cli/run_plan.h"
#include "cli/supervised.h"
#include "common/clock.h"
#include "common/cluster/environment.h"
#include "common/cluster/security.h"
#include "common/net/address.h"
#include "lab/host/first_process.h"
#include "lab/host/script_job.h"
#include "lab/host/supervisor.h"
#include "lab/host/temp_dir.h"

namespace psring {
namespace {

constexpr char kName[] = "psring run";

constexpr char kDescription[] =
    "Runs a program of your own as the workers of a job on this host: a script "
    "that imports psring. Flags choose its topology. What follows `--` is the "
    "program's command line. Where srun, mpirun, torchrun or a pod of "
    "Kubernetes has started this command, or PSRING_RANK and PSRING_SIZE are "
    "set, this process becomes one of the job's workers; with -n=N, it starts "
    "N of them. Give no --coordinator "
    "there: with it, each process starts a job of its own.";

// A job that this command starts by itself gets a key of its own; else all
// processes must have it already.
absl::Status TakeKey(const SecurityWish& wish, bool launched, ScriptJob& job) {
  const Variables variables = ReadVariables();
  auto security = job.coordinator.empty() && !launched
                      ? NewSecurity(wish, variables)
                      : FindSecurity(wish, variables);
  if (!security.ok()) return security.status();
  job.security = *std::move(security);
  return absl::OkStatus();
}

absl::Status CheckJob(const ScriptJob& job) {
  if (job.mode == "ddp" && job.security.require_encryption) {
    return absl::InvalidArgumentError(
        "--mode=ddp: torch.distributed encrypts nothing, but encryption is "
        "required (--require-encryption, PSRING_REQUIRE_ENCRYPTION=1)");
  }
  return CheckScriptJob(job);
}

// Other hosts would wait in vain for a coordinator that listens there.
void WarnOfLoopback(const ScriptJob& job) {
  const auto address = ParseHostPort(job.coordinator);
  const bool for_others = job.first_rank == 0 && job.job_size() > job.workers;
  if (!for_others || !address.ok() || !IsLoopbackName(address->host)) return;
  const auto advertised = AddressOf(job);
  if (advertised.ok() && !IsLoopback(advertised->address)) return;
  std::cerr << kName << ": --coordinator: " << address->host
            << " is a loopback address on this host (see /etc/hosts), which "
               "other hosts cannot reach: name this host by an address that "
               "they reach"
            << std::endl;
}

// This process becomes the worker that its launcher has started, or, as the
// first process of a container, has it as its child. Returns the exit code only
// of that, or if it cannot.
int BecomeWorker(const ScriptJob& job) {
  std::map<std::string, std::string> variables = job.extra;
  variables["PSRING_MODE"] = job.mode;
  if (job.mode == "ps") variables["PSRING_SERVERS"] = absl::StrCat(job.servers);
  if (job.threads_per_worker > 0) {
    variables["OMP_NUM_THREADS"] = absl::StrCat(job.threads_per_worker);
  }
  if (!job.page.empty()) variables["PSRING_PAGE"] = job.page;
  if (!job.page_token_file.empty()) {
    variables["PSRING_PAGE_TOKEN_FILE"] = job.page_token_file;
  }
  variables["PYTHONUNBUFFERED"] = "1";
  variables["PSRING_RESTARTS"] = "0";
  Args argv = {"/usr/bin/env"};
  const Security& security = job.security;
  if (security.insecure) variables["PSRING_INSECURE"] = "1";
  if (security.require_encryption) variables["PSRING_REQUIRE_ENCRYPTION"] = "1";
  if (!security.file.empty()) {
    variables["PSRING_KEY_FILE"] = security.file;
    argv.insert(argv.end(), {"-u", "PSRING_INSECURE"});
  }
  for (const auto& [name, value] : variables) {
    argv.push_back(absl::StrCat(name, "=", value));
  }
  const Args command = ForEnv(job.command);
  argv.insert(argv.end(), command.begin(), command.end());
  std::vector<char*> raw;
  for (std::string& arg : argv) raw.push_back(arg.data());
  raw.push_back(nullptr);
  if (getpid() == 1) {
    const auto code = RunAsFirstProcess(raw);
    return code.ok() ? *code : Fail(kName, code.status());
  }
  execv(raw[0], raw.data());
  return Fail(kName,
              absl::UnavailableError(absl::StrCat(
                  "cannot start ", job.command[0], ": ", strerror(errno))));
}

// Whether this host has an address for the others, and knows the coordinator's.
absl::Status CheckNetwork(const ScriptJob& job) {
  if (job.coordinator.empty()) return absl::OkStatus();
  if (auto address = AddressOf(job); !address.ok()) return address.status();
  return Resolve(ParseHostPort(job.coordinator)->host).status();
}

// Before a restart: waits, at most as long as the other hosts wait for this
// one, for its network and the coordinator's name to return.
void AwaitNetwork(const ScriptJob& job, const Attempt& attempt) {
  const Time end = Now() + absl::Seconds(job.join_timeout_s);
  absl::Status status = CheckNetwork(job);
  if (!status.ok()) {
    std::cerr << kName << ": " << status.message()
              << "; waits for the network to return" << std::endl;
  }
  while (!status.ok() && Now() < end &&
         attempt.cancellation->SleepUntil(Now() + absl::Seconds(1)).ok()) {
    status = CheckNetwork(job);
  }
}

// Where a script that may be started again finds what it has committed: without
// a folder of the user's, one that ends with this command.
std::optional<TempDir> GiveStateFolder(const SupervisedFlags& supervised,
                                       ScriptJob& job) {
  constexpr char kVariable[] = "PSRING_STATE_DIR";
  if (supervised.max_restarts == 0 || job.extra.contains(kVariable) ||
      ReadVariables().contains(kVariable)) {
    return {};
  }
  auto folder = TempDir::Create();
  if (!folder.ok()) {
    std::cerr << kName << ": " << folder.status().message()
              << ": what the script commits is not kept" << std::endl;
    return {};
  }
  job.extra[kVariable] = folder->path();
  return *std::move(folder);
}

// Starts the workers and waits for them; the exit code.
int RunWorkers(ScriptJob job, const SupervisedFlags& supervised) {
  const auto state = GiveStateFolder(supervised, job);
  // Its coordinator lives as long as the processes.
  std::unique_ptr<RunningScript> running;
  const int code = RunSupervised(
      kName, supervised, job.security,
      [&](Supervisor& supervisor,
          const Attempt& attempt) -> absl::StatusOr<HostPort> {
        running.reset();  // frees its port
        if (attempt.restarts > 0) AwaitNetwork(job, attempt);
        ScriptJob now = job;
        now.restarts = attempt.restarts;
        // Only workers of other hosts can outlive this start.
        now.may_come_again = attempt.has_next && job.job_size() > job.workers;
        auto started = RunningScript::Start(now, supervisor);
        if (!started.ok()) return started.status();
        running = *std::move(started);
        return running->coordinator();
      },
      [&](const Failure& failure) {
        if (running != nullptr) running->TellFailure(failure);
      });
  if (code == 0 && job.mode != "ddp" && !running->anyone_joined()) {
    std::cerr << kName
              << ": no process has joined the job, so each has worked "
                 "by itself: does the program call psring's init()?"
              << (job.torchrun_variables
                      ? ""
                      : " One of torch.distributed that reads RANK or "
                        "WORLD_SIZE needs --torchrun-variables")
              << std::endl;
  }
  return code;
}

// -np is how mpirun and horovodrun spell -n.
Args WithShortN(Args args) {
  for (auto arg = args.begin(); arg != args.end() && *arg != "--"; ++arg) {
    if (*arg == "-np") *arg = "-n";
  }
  return args;
}

}  // namespace

int RunScript(const Args& args) {
  CommandLine line(kDescription, kName);
  RunFlags flags;
  AddRunFlags(line, flags);
  if (auto code = line.ParseBeforeDashes(WithShortN(args),
                                         "your program and its arguments",
                                         flags.job.command)) {
    return *code;
  }
  auto plan = PlanRun(line, flags);
  if (!plan.ok()) return line.UsageError(std::string(plan.status().message()));
  absl::Status s = TakeKey(flags.security, plan->becomes_worker, plan->job);
  if (s.ok()) s = CheckJob(plan->job);
  if (absl::IsInvalidArgument(s)) {
    return line.UsageError(std::string(s.message()));
  }
  if (!s.ok()) return Fail(kName, s);
  if (plan->becomes_worker) return BecomeWorker(plan->job);
  WarnOfLoopback(plan->job);
  return RunWorkers(plan->job, flags.supervised);
}

}  // namespace psring
