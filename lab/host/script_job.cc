#include "lab/host/script_job.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/cluster/environment.h"
#include "common/host_cores.h"
#include "common/net/address.h"
#include "common/page/job_page.h"
#include "lab/host/job_key.h"

namespace psring {
namespace {

MembershipOptions MembershipOf(const ScriptJob& job) {
  MembershipOptions membership;
  const bool ring = job.mode != "ps";
  membership.mode = ring ? proto::RING : proto::PARAMETER_SERVER;
  membership.num_servers = ring ? 0 : job.servers;
  membership.num_workers = job.job_size();
  membership.join_timeout = absl::Seconds(job.join_timeout_s);
  membership.heartbeat_timeout = absl::Seconds(job.heartbeat_timeout_s);
  membership.may_come_again = job.may_come_again;
  membership.late_comers = job.job_size() > job.workers;
  return membership;
}

std::string Variable(const std::string& name, const std::string& value) {
  return absl::StrCat(name, "=", value);
}

// Adds what to do where a coordinator cannot listen: this may not be rank 0's
// host.
absl::Status WithPlace(const absl::Status& status, const ScriptJob& job) {
  const bool taken_or_foreign =
      absl::IsAlreadyExists(status) || absl::IsInvalidArgument(status);
  if (job.job_size() == job.workers || !taken_or_foreign) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(std::string(status.message()),
                   ". If rank 0 is started by another command, give this one "
                   "--first-rank=K, the rank of its first worker"));
}

// The variable `name` is `seconds`, where it is set.
absl::Status TakeTimeout(const std::string& name, double least,
                         double& seconds) {
  const Variables variables = ReadVariables();
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) {
    return absl::OkStatus();
  }
  if (absl::SimpleAtod(found->second, &seconds) && seconds >= least &&
      seconds <= kMaxTimeoutS) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", found->second, ": not a number of seconds from ",
                   least, " to ", kMaxTimeoutS));
}

}  // namespace

absl::Status TakeJoinTimeout(ScriptJob& job) {
  return TakeTimeout("PSRING_JOIN_TIMEOUT_S", kMinJoinTimeoutS,
                     job.join_timeout_s);
}

absl::Status TakeHeartbeatTimeout(ScriptJob& job) {
  return TakeTimeout("PSRING_HEARTBEAT_TIMEOUT_S", kMinHeartbeatTimeoutS,
                     job.heartbeat_timeout_s);
}

absl::Status CheckScriptJob(const ScriptJob& job) {
  if (job.command.empty()) {
    return absl::InvalidArgumentError(
        "no program: name it after `--`, e.g. `-- python3 train.py`");
  }
  const std::string& program = job.command[0];
  if (absl::EndsWith(program, ".py") && access(program.c_str(), F_OK) == 0 &&
      access(program.c_str(), X_OK) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        program, " is not executable: start it by `-- python3 ", program, "`"));
  }
  if (job.first_rank + job.workers > job.job_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--size=", job.job_size(),
                     ", but this host has the ranks ", job.first_rank, " to ",
                     job.first_rank + job.workers - 1, " (--first-rank, -n)"));
  }
  if (job.job_size() > job.workers && job.coordinator.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--size=", job.job_size(),
        " counts processes of other hosts: "
        "--coordinator=HOST:PORT is missing, the same on all of them"));
  }
  if (job.coordinator.empty()) return absl::OkStatus();
  const auto coordinator = ParseHostPort(job.coordinator);
  return coordinator.ok()
             ? CheckIsOneAddress(coordinator->host)
             : absl::InvalidArgumentError(absl::StrCat(
                   "--coordinator: ", coordinator.status().message()));
}

absl::StatusOr<AdvertisedAddress> AddressOf(const ScriptJob& job) {
  if (job.coordinator.empty()) return ChooseAdvertised({});
  const auto coordinator = ParseHostPort(job.coordinator);
  if (!coordinator.ok()) return coordinator.status();
  Variables variables = ReadVariables();  // as the workers will have them
  for (const auto& [name, value] : job.extra) variables[name] = value;
  return ChooseAdvertised({.advertise = variables["PSRING_ADVERTISE"],
                           .interface = variables["PSRING_INTERFACE"],
                           .coordinator_host = coordinator->host,
                           .reachable = job.security.secret.has_value()});
}

constexpr char kThreads[] = "OMP_NUM_THREADS";
// LD_LIBRARY_PATH as it was before a bundle's wrapper named the bundle's
// libraries there, with which the user's programs may not start.
constexpr char kOuterLibraryPath[] = "PSRING_OUTER_LIBRARY_PATH";

Args ForEnv(Args command) {
  if (absl::StrContains(command[0], '=')) {
    const Args shell = {"/bin/sh", "-c", "exec \"$0\" \"$@\""};
    command.insert(command.begin(), shell.begin(), shell.end());
  }
  return command;
}

Command WorkerCommand(const ScriptJob& job, const std::string& coordinator,
                      int index) {
  const int rank = job.first_rank + index;
  const int threads = job.threads_per_worker > 0
                          ? job.threads_per_worker
                          : std::max(1, HostCores() / job.workers);
  std::map<std::string, std::string> variables = {
      {"PSRING_RANK", absl::StrCat(rank)},
      {"PSRING_SIZE", absl::StrCat(job.job_size())},
      {"PSRING_LOCAL_RANK", absl::StrCat(index)},
      {"PSRING_LOCAL_SIZE", absl::StrCat(job.workers)},
      {"PSRING_COORDINATOR", coordinator},
      {"PSRING_COORDINATOR_HOSTED", "1"},
      {"PSRING_MODE", job.mode},
      {"PSRING_SERVERS", absl::StrCat(job.servers)},
      {"PSRING_JOIN_TIMEOUT_S", absl::StrCat(job.join_timeout_s)},
      {"PSRING_HEARTBEAT_TIMEOUT_S", absl::StrCat(job.heartbeat_timeout_s)},
      {"PSRING_RESTARTS", absl::StrCat(job.restarts)},
      {"PYTHONUNBUFFERED", "1"}};
  if (job.torchrun_variables) {
    for (const char* name : {"RANK", "LOCAL_RANK"}) {
      variables[name] = variables[absl::StrCat("PSRING_", name)];
    }
    variables["WORLD_SIZE"] = variables["PSRING_SIZE"];
    variables["LOCAL_WORLD_SIZE"] = variables["PSRING_LOCAL_SIZE"];
    if (const auto address = ParseHostPort(coordinator); address.ok()) {
      variables["MASTER_ADDR"] = address->host;
    }
  }
  const Variables own = ReadVariables();
  // The user's own stays, unless a flag says more.
  if (job.threads_per_worker > 0 || !own.contains(kThreads)) {
    variables[kThreads] = absl::StrCat(threads);
  }
  if (const auto outer = own.find(kOuterLibraryPath); outer != own.end()) {
    variables["LD_LIBRARY_PATH"] = outer->second;
  }
  for (const auto& [name, value] : job.extra) variables[name] = value;
  Command command;
  command.name = absl::StrCat("worker ", rank);
  command.argv = {"/usr/bin/env"};
  for (const auto& [name, value] : variables) {
    command.argv.push_back(Variable(name, value));
  }
  for (std::string& arg : ForEnv(job.command)) {
    command.argv.push_back(std::move(arg));
  }
  return command;
}

absl::StatusOr<std::unique_ptr<RunningScript>> RunningScript::Start(
    const ScriptJob& job, Supervisor& supervisor) {
  if (absl::Status s = CheckScriptJob(job); !s.ok()) return s;
  std::unique_ptr<RunningScript> running(new RunningScript());
  HostPort address = {"127.0.0.1", 0};
  if (!job.coordinator.empty()) {
    address = *ParseHostPort(job.coordinator);
  }
  const auto advertised = AddressOf(job);
  if (!advertised.ok()) return advertised.status();
  const auto where = WhereToListen(address, advertised->address);
  if (!where.ok()) return where.status();
  absl::Status status = CheckListening(job.security, where->at.host);
  if (!status.ok()) return status;
  const auto key = JobKey::Create(job.security);
  if (!key.ok()) return key.status();
  status = running->context_.Protect(job.security.secret);
  if (!status.ok()) return status;
  if (job.first_rank == 0) {
    CoordinatorWatch watch;
    if (!job.page.empty()) {
      auto page = StartPage(job.page, job.page_token_file);
      if (!page.ok()) return page.status();
      watch = *std::move(page);
    }
    auto coordinator =
        Coordinator::Start(running->context_, where->at, MembershipOf(job),
                           std::move(watch), where->also);
    if (!coordinator.ok()) return WithPlace(coordinator.status(), job);
    running->coordinator_ = *std::move(coordinator);
    address.port = ParseEndpoint(running->coordinator_->endpoint())->port;
  }
  running->address_ = address;
  for (int i = 0; i < job.workers; ++i) {
    Command command = WorkerCommand(job, ToString(address), i);
    key->GiveTo(command);
    status = supervisor.Start(std::move(command));
    if (!status.ok()) return status;
  }
  return running;
}

void RunningScript::TellFailure(const Failure& failure) {
  if (coordinator_ == nullptr) return;
  coordinator_->EndsBecause(
      absl::StrCat(failure.name, " (host ", HostName(), ", pid ", failure.pid,
                   ") failed: ", ToString(failure.ending)));
}

}  // namespace psring
