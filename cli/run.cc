#include "cli/run.h"

#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/supervised.h"
#include "common/cluster/environment.h"
#include "common/cluster/security.h"
#include "common/net/address.h"
#include "common/optim/sync_policy.h"
#include "lab/host/first_process.h"
#include "lab/host/script_job.h"
#include "lab/host/supervisor.h"

namespace psring {
namespace {

constexpr char kName[] = "psring run";

constexpr char kDescription[] =
    "Runs a program of your own as the workers of a job on this host: a script "
    "that imports psring. Flags choose its topology. What follows `--` is the "
    "program's command line. Where srun, mpirun, torchrun or a pod of "
    "Kubernetes has started this command, this process becomes one of the "
    "job's workers; with -n=N, it starts N of them. Give no --coordinator "
    "there: with it, each process starts a job of its own.";

constexpr char kExample[] =
    "Without --sync, --update or --compress the script's own choice counts, "
    "else psring's default.\n"
    "Examples:\n"
    "  psring run -n 4 -- python3 train.py\n"
    "  psring run -n 4 --mode=ps --servers=2 --sync=async -- python3 train.py\n"
    "and on two hosts, the first of which is 10.0.0.1:\n"
    "  psring run -n 2 --size=4 --coordinator=10.0.0.1:7000 -- python3 t.py\n"
    "  psring run -n 2 --size=4 --coordinator=10.0.0.1:7000 --first-rank=2 \\\n"
    "      -- python3 t.py\n"
    "and six workers on hosts that Slurm chooses:\n"
    "  srun -n 6 psring run -- python3 train.py";

struct RunFlags {
  ScriptJob job;
  int servers_per_node = 0;
  SupervisedFlags supervised;
  // What scripts read from their environment; empty: not set.
  std::string sync, update, compress, metrics_dir, tensorboard;
  std::string interface, advertise;
  SecurityWish security = {};
};

// What is wrong with --sync; empty: nothing.
std::string CheckSync(const std::string& value) {
  const auto sync = ParseSync(value);
  if (!sync.ok()) return std::string(sync.status().message());
  const bool lacks_bound = TakesBound(*sync->policy) && sync->staleness < 0 &&
                           ReadVariables().count("PSRING_STALENESS") == 0;
  return lacks_bound
             ? absl::StrCat("\"", value,
                            "\" needs the steps that a worker may be ahead: ",
                            value, ":K")
             : "";
}

void AddFlags(CommandLine& line, RunFlags& flags) {
  ScriptJob& job = flags.job;
  line.Add("-n,--workers", job.workers, "Number of workers on this host")
      .Range(1, 1024);
  line.Add("--mode", job.mode,
           "Topology, or ddp: torch.distributed exchanges the gradients; "
           "default: $PSRING_MODE, else ring")
      .OneOf({"ring", "ps", "ddp"})
      .Default("");
  line.Add("--servers", job.servers,
           "Number of servers (--mode=ps); each lives in one of the first "
           "workers' processes; default: $PSRING_SERVERS, else 1")
      .Range(1, 1024)
      .Default("");
  line.Add("--servers-per-node", flags.servers_per_node,
           "Instead of --servers: number of servers on every host, as threads "
           "of that host's first worker")
      .Range(1, 64)
      .Default("");
  line.Add("--sync", flags.sync,
           absl::StrCat("Consistency (--mode=ps): ", SyncForms(),
                        "; K: how many steps a worker may be ahead of the "
                        "slowest"))
      .Check(CheckSync);
  line.Add("--update", flags.update,
           "Where the optimizer runs: local (in the script, on the mean "
           "gradient) or fused (at the servers, or each rank for its part of "
           "the model)")
      .OneOf({"local", "fused"});
  line.Add("--compress", flags.compress,
           "How gradients travel: none, fp16, bf16, int8, onebit, topk:F");
  line.Add("--size", job.size,
           "Number of workers on all hosts; default: those of this one")
      .Range(1, 4096)
      .Default("");
  line.Add("--first-rank", job.first_rank, "Rank of this host's first worker")
      .Range(0, 4095);
  line.Add(
      "--coordinator", job.coordinator,
      "HOST:PORT at which the command that starts rank 0 listens, the same "
      "on all hosts");
  line.Add("--interface", flags.interface,
           "On a host with several networks: the interface over which the "
           "other hosts reach its workers");
  line.Add("--advertise", flags.advertise,
           "Instead of --interface: the address at which they do");
  AddPageFlags(line, job.page, job.page_token_file);
  AddSecurityFlags(line, flags.security, /*several_hosts=*/true);
  line.Add("--join-timeout", job.join_timeout_s,
           "Seconds within which every worker must have called init()")
      .Range(1.0, 86400.0);
  line.Add("--threads-per-worker", job.threads_per_worker,
           "OMP_NUM_THREADS of each worker; default: its share of this host's "
           "cores")
      .Range(1, 1024)
      .Default("");
  line.Add("--metrics-dir", flags.metrics_dir,
           "Folder for every process's metrics (JSON lines)");
  line.Add("--tensorboard", flags.tensorboard,
           "Folder for what worker 0 and the servers have for TensorBoard");
  flags.supervised.AddTo(line);
  line.Footer(kExample);
}

// A variable's number of servers, if it is set.
absl::Status TakeNumber(const Variables& variables, const std::string& name,
                        int* number) {
  const auto found = variables.find(name);
  if (found == variables.end() || found->second.empty()) {
    return absl::OkStatus();
  }
  if (absl::SimpleAtoi(found->second, number) && *number >= 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", found->second, ": not a number of servers"));
}

// What the user's environment says of the job, where flags do not.
absl::Status TakeVariables(const CommandLine& line, RunFlags& flags) {
  ScriptJob& job = flags.job;
  const Variables variables = ReadVariables();
  const auto mode = variables.find("PSRING_MODE");
  if (!line.Has("--mode") && mode != variables.end() && !mode->second.empty()) {
    job.mode = mode->second;
    if (job.mode != "ring" && job.mode != "ps" && job.mode != "ddp") {
      return absl::InvalidArgumentError(
          absl::StrCat("PSRING_MODE=", job.mode, ": it is ring, ps or ddp"));
    }
  }
  const auto page = variables.find("PSRING_PAGE");
  if (!line.Has("--page") && page != variables.end()) job.page = page->second;
  const auto token = variables.find("PSRING_PAGE_TOKEN_FILE");
  if (!line.Has("--page-token-file") && token != variables.end()) {
    job.page_token_file = token->second;
  }
  if (line.Has("--servers") || line.Has("--servers-per-node")) {
    return absl::OkStatus();
  }
  absl::Status s = TakeNumber(variables, "PSRING_SERVERS", &job.servers);
  if (!s.ok() || job.mode != "ps") return s;
  return TakeNumber(variables, "PSRING_SERVERS_PER_NODE",
                    &flags.servers_per_node);
}

// What flags say, in the variables by which workers are told.
void SetVariables(const CommandLine& line, RunFlags& flags) {
  for (const auto& [name, value] :
       {std::pair("PSRING_SYNC", &flags.sync),
        std::pair("PSRING_UPDATE", &flags.update),
        std::pair("PSRING_COMPRESS", &flags.compress)}) {
    if (!value->empty()) flags.job.extra[name] = *value;
  }
  if (line.Has("--interface") || line.Has("--advertise")) {
    flags.job.extra["PSRING_INTERFACE"] = flags.interface;
    flags.job.extra["PSRING_ADVERTISE"] = flags.advertise;
  }
  for (const auto& [name, folder] :
       {std::pair("PSRING_METRICS_DIR", &flags.metrics_dir),
        std::pair("PSRING_TENSORBOARD", &flags.tensorboard)}) {
    if (folder->empty()) continue;
    flags.job.extra[name] = std::filesystem::absolute(*folder).string();
  }
}

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

// The flag that places processes by hand; empty: none is given.
std::string FlagOfPlace(const CommandLine& line) {
  for (const char* flag : {"--size", "--first-rank", "--coordinator"}) {
    if (line.Has(flag)) return flag;
  }
  return "";
}

// A launcher has started this command once for `env.size` groups of workers:
// the ranks of this one.
void TakeRanks(const LaunchEnvironment& env, ScriptJob& job) {
  if (env.size == 1) return;
  job.size = job.workers * env.size;
  job.first_rank = job.workers * env.rank;
  if (env.coordinator_host.empty()) return;
  job.coordinator =
      ToString(HostPort{env.coordinator_host, env.coordinator_port});
}

// Every host must have as many workers, so that hosts can be counted.
absl::Status TakeServersPerNode(int servers_per_node, ScriptJob& job) {
  if (job.job_size() % job.workers != 0 || job.first_rank % job.workers != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--servers-per-node: hosts have different numbers of workers (-n=",
        job.workers, ", --size=", job.job_size(),
        ", --first-rank=", job.first_rank, "); give --servers"));
  }
  const int nodes = job.job_size() / job.workers;
  job.servers = servers_per_node * nodes;
  job.extra["PSRING_SERVERS_PER_NODE"] = absl::StrCat(servers_per_node);
  job.extra["PSRING_NODES"] = absl::StrCat(nodes);
  job.extra["PSRING_NODE"] = absl::StrCat(job.first_rank / job.workers);
  return absl::OkStatus();
}

// Other hosts would wait in vain for a coordinator that listens there.
void WarnOfLoopback(const ScriptJob& job) {
  const auto address = ParseHostPort(job.coordinator);
  const bool for_others = job.first_rank == 0 && job.job_size() > job.workers;
  if (!for_others || !address.ok() || !IsLoopbackName(address->host)) return;
  const auto advertised =
      ChooseAdvertised({.coordinator_host = address->host,
                        .reachable = job.security.secret.has_value()});
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
int BecomeWorker(const CommandLine& line, const RunFlags& flags,
                 const std::string& launcher) {
  const ScriptJob& job = flags.job;
  if (line.Has("--log-dir")) {
    return line.UsageError(absl::StrCat("--log-dir: ", launcher,
                                        " started this process and keeps its "
                                        "output; or give -n"));
  }
  std::map<std::string, std::string> variables = job.extra;
  variables["PSRING_MODE"] = job.mode;
  if (job.mode == "ps") variables["PSRING_SERVERS"] = absl::StrCat(job.servers);
  variables["PSRING_SERVERS_PER_NODE"] = absl::StrCat(flags.servers_per_node);
  if (line.Has("--join-timeout")) {
    variables["PSRING_JOIN_TIMEOUT_S"] = absl::StrCat(job.join_timeout_s);
  }
  if (job.threads_per_worker > 0) {
    variables["OMP_NUM_THREADS"] = absl::StrCat(job.threads_per_worker);
  }
  if (!job.page.empty()) variables["PSRING_PAGE"] = job.page;
  if (!job.page_token_file.empty()) {
    variables["PSRING_PAGE_TOKEN_FILE"] = job.page_token_file;
  }
  variables["PYTHONUNBUFFERED"] = "1";
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
  argv.insert(argv.end(), job.command.begin(), job.command.end());
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

}  // namespace

int RunScript(const Args& args) {
  CommandLine line(kDescription, kName);
  RunFlags flags;
  AddFlags(line, flags);
  if (auto code = line.ParseBeforeDashes(args, "your program and its arguments",
                                         flags.job.command)) {
    return *code;
  }
  if (absl::Status s = TakeVariables(line, flags); !s.ok()) {
    return line.UsageError(std::string(s.message()));
  }
  if (line.Has("--interface") && line.Has("--advertise")) {
    return line.UsageError("--interface and --advertise: give one");
  }
  if (line.Has("--servers") && line.Has("--servers-per-node")) {
    return line.UsageError("--servers and --servers-per-node: give one");
  }
  for (const char* flag : {"--servers", "--servers-per-node", "--sync"}) {
    if (flags.job.mode == "ps" || !line.Has(flag)) continue;
    return line.UsageError(absl::StrCat(
        flag, ": only --mode=ps has servers; the mode is ", flags.job.mode));
  }
  const auto env = DetectEnvironment(ReadVariables());
  if (!env.ok()) return line.UsageError(std::string(env.status().message()));
  const bool launched = !env->source.empty() && env->source != "psring run" &&
                        FlagOfPlace(line).empty();
  if (launched && !line.Has("--workers") && env->workers_wanted > 1) {
    flags.job.workers = env->workers_wanted;
  }
  const bool becomes_worker =
      launched && !line.Has("--workers") && env->workers_wanted < 2;
  // A worker's script may say page= itself.
  absl::Status page =
      becomes_worker ? absl::OkStatus() : CheckPageFlags(line, flags.job.page);
  if (!page.ok()) return line.UsageError(std::string(page.message()));
  if (launched && !becomes_worker) TakeRanks(*env, flags.job);
  flags.job.extra["PSRING_SERVERS_PER_NODE"] = "0";  // in place of the user's
  if (flags.servers_per_node > 0 && !becomes_worker) {
    if (launched && env->num_nodes > 0 && env->num_nodes != env->size) {
      return line.UsageError(absl::StrCat(
          "--servers-per-node: ", env->source, " started this command ",
          env->size, " times on ", env->num_nodes,
          " hosts; with -n, start it once on each, or give --servers"));
    }
    absl::Status s = TakeServersPerNode(flags.servers_per_node, flags.job);
    if (!s.ok()) return line.UsageError(std::string(s.message()));
  }
  SetVariables(line, flags);
  absl::Status s = TakeKey(flags.security, becomes_worker, flags.job);
  if (!s.ok()) return Fail(kName, s);
  if (flags.job.mode == "ddp" && flags.job.security.require_encryption) {
    return line.UsageError(
        "--mode=ddp: torch.distributed encrypts nothing, but encryption is "
        "required (--require-encryption, PSRING_REQUIRE_ENCRYPTION=1)");
  }
  if (s = CheckScriptJob(flags.job); !s.ok()) {
    return line.UsageError(std::string(s.message()));
  }
  if (becomes_worker) return BecomeWorker(line, flags, env->source);
  WarnOfLoopback(flags.job);
  // Its coordinator lives as long as the processes.
  std::unique_ptr<RunningScript> running;
  const int code = RunSupervised(
      kName, flags.supervised, flags.job.security,
      [&](Supervisor& supervisor) -> absl::StatusOr<HostPort> {
        auto started = RunningScript::Start(flags.job, supervisor);
        if (!started.ok()) return started.status();
        running = *std::move(started);
        return running->coordinator();
      });
  if (code == 0 && flags.job.mode != "ddp" && !running->anyone_joined()) {
    std::cerr << kName
              << ": no process has joined the job, so each has worked "
                 "by itself: does the program call psring's init()?"
              << std::endl;
  }
  return code;
}

}  // namespace psring
