#include "cli/run_plan.h"

#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "common/cluster/environment.h"
#include "common/net/address.h"
#include "common/optim/compression.h"
#include "common/optim/sync_policy.h"

namespace psring {
namespace {

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
  if (!line.Has("--join-timeout")) {
    absl::Status s = TakeJoinTimeout(job);
    if (!s.ok()) return s;
  }
  if (!line.Has("--heartbeat-timeout")) {
    absl::Status s = TakeHeartbeatTimeout(job);
    if (!s.ok()) return s;
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
        std::pair("PSRING_COMPRESS", &flags.compress),
        std::pair("PSRING_PORTS", &flags.ports)}) {
    if (!value->empty()) flags.job.extra[name] = *value;
  }
  if (line.Has("--interface") || line.Has("--advertise")) {
    flags.job.extra["PSRING_INTERFACE"] = flags.interface;
    flags.job.extra["PSRING_ADVERTISE"] = flags.advertise;
  }
  for (const auto& [name, folder] :
       {std::pair("PSRING_METRICS_DIR", &flags.metrics_dir),
        std::pair("PSRING_TENSORBOARD", &flags.tensorboard),
        std::pair("PSRING_STATE_DIR", &flags.state_dir)}) {
    if (folder->empty()) continue;
    flags.job.extra[name] = std::filesystem::absolute(*folder).string();
  }
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
absl::Status TakeRanks(const LaunchEnvironment& env, ScriptJob& job) {
  if (env.size == 1) return absl::OkStatus();
  job.size = job.workers * env.size;
  job.first_rank = job.workers * env.rank;
  if (env.coordinator_host.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        env.source, " started this command ", env.size,
        " times and does not say where rank 0 is: set PSRING_COORDINATOR=HOST:"
        "PORT for all of them, the host of rank 0 and a free port of it"));
  }
  job.coordinator =
      ToString(HostPort{env.coordinator_host, env.coordinator_port});
  return absl::OkStatus();
}

// Whether a worker started this command, for a job of its own: what the
// variables say of a place is the worker's.
bool IsOfAWorker(const LaunchEnvironment& env, const Variables& variables) {
  return env.source == kPsringRun || variables.count("PSRING_JOINED") > 0;
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

// Of flags that exclude one another, or need servers.
absl::Status CheckFlags(const CommandLine& line, const RunFlags& flags) {
  if (line.Has("--interface") && line.Has("--advertise")) {
    return absl::InvalidArgumentError("--interface and --advertise: give one");
  }
  if (const auto ports = ParsePortRange(flags.ports); !ports.ok()) {
    return OfFlag("--ports", ports.status());
  }
  if (const auto way = ParseCompression(flags.compress);
      line.Has("--compress") && !way.ok()) {
    return way.status();
  }
  if (line.Has("--servers") && line.Has("--servers-per-node")) {
    return absl::InvalidArgumentError(
        "--servers and --servers-per-node: give one");
  }
  for (const char* flag : {"--servers", "--servers-per-node", "--sync"}) {
    if (flags.job.mode == "ps" || !line.Has(flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " needs --mode=ps; the mode is ", flags.job.mode));
  }
  return absl::OkStatus();
}

// As the worker that `launcher` has started. What flags say of a page is not
// checked: the script may say the rest.
absl::StatusOr<RunPlan> PlanWorker(const CommandLine& line, RunFlags& flags,
                                   const std::string& launcher) {
  if (line.Has("--log-dir")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-dir: ", launcher,
                     " started this process and keeps its output; or give -n"));
  }
  if (line.Has("--max-restarts")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-restarts: ", launcher,
        " started this process and alone can start it again; or give -n"));
  }
  if (flags.job.torchrun_variables) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--torchrun-variables: ", launcher,
        " started this process, and psring sets them only for workers that it "
        "starts itself: give -n"));
  }
  flags.job.extra["PSRING_SERVERS_PER_NODE"] =
      absl::StrCat(flags.servers_per_node);
  if (line.Has("--join-timeout")) {
    flags.job.extra["PSRING_JOIN_TIMEOUT_S"] =
        absl::StrCat(flags.job.join_timeout_s);
  }
  if (line.Has("--heartbeat-timeout")) {
    flags.job.extra["PSRING_HEARTBEAT_TIMEOUT_S"] =
        absl::StrCat(flags.job.heartbeat_timeout_s);
  }
  SetVariables(line, flags);
  return RunPlan{flags.job, /*becomes_worker=*/true};
}

}  // namespace

void AddRunFlags(CommandLine& line, RunFlags& flags) {
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
  line.Add("--ports", flags.ports,
           "FIRST-LAST: ports on which its workers and servers listen; "
           "default: the system chooses");
  AddPageFlags(line, job.page, job.page_token_file);
  AddSecurityFlags(line, flags.security, /*several_hosts=*/true);
  line.Add("--join-timeout", job.join_timeout_s,
           "Seconds within which every worker must have called init(), from "
           "the first one on; default: $PSRING_JOIN_TIMEOUT_S, else 60")
      .Range(kMinJoinTimeoutS, kMaxTimeoutS)
      .Default("");
  line.Add("--heartbeat-timeout", job.heartbeat_timeout_s,
           "Seconds for which a worker, or its network, may be silent before "
           "it counts as lost, which ends the job with its name; the command "
           "that starts rank 0 decides it for all hosts; default: "
           "$PSRING_HEARTBEAT_TIMEOUT_S, else 5")
      .Range(kMinHeartbeatTimeoutS, kMaxTimeoutS)
      .Default("");
  line.Add("--threads-per-worker", job.threads_per_worker,
           "OMP_NUM_THREADS of each worker; default: its share of this host's "
           "cores")
      .Range(1, 1024)
      .Default("");
  line.Add(
      "--torchrun-variables", job.torchrun_variables,
      "Sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and MASTER_ADDR, "
      "too, for scripts of torch.distributed that read them");
  line.Add("--metrics-dir", flags.metrics_dir,
           "Folder for every process's metrics (JSON lines)");
  line.Add("--tensorboard", flags.tensorboard,
           "Folder for what worker 0 and the servers have for TensorBoard");
  line.Add(
      "--state-dir", flags.state_dir,
      "Folder for what the script commits (commit() of the elastic of "
      "psring.torch, jax, keras or tensorflow), from which it goes on when it "
      "is started again; default with --max-restarts: a temporary one, as long "
      "as this command runs");
  flags.supervised.AddTo(line);
  line.Footer(kExample);
}

absl::StatusOr<RunPlan> PlanRun(const CommandLine& line, RunFlags flags) {
  absl::Status s = TakeVariables(line, flags);
  if (s.ok()) s = CheckFlags(line, flags);
  if (!s.ok()) return s;
  const Variables variables = ReadVariables();
  const auto env = DetectEnvironment(variables);
  if (!env.ok()) return env.status();
  ScriptJob& job = flags.job;
  const bool nested = IsOfAWorker(*env, variables);
  if (!nested && !env->half.empty() && FlagOfPlace(line).empty()) {
    return absl::InvalidArgumentError(env->half);
  }
  const bool by_launcher = !nested && !env->source.empty();
  const bool launched = by_launcher && FlagOfPlace(line).empty();
  if (by_launcher && env->size > 1 && FlagOfPlace(line) == "--coordinator") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--coordinator: ", env->source, " started this command ", env->size,
        " times, and with this flag each would start a job of its own there: "
        "leave it out (where ",
        env->source,
        " does not say where rank 0 is, set PSRING_COORDINATOR), or give "
        "--size and --first-rank, too"));
  }
  if (launched && !line.Has("--workers")) {
    if (env->workers_wanted < 2) return PlanWorker(line, flags, env->source);
    job.workers = env->workers_wanted;
  }
  if (s = CheckPageFlags(line, job.page); !s.ok()) return s;
  if (launched) {
    if (s = TakeRanks(*env, job); !s.ok()) return s;
  }
  job.extra["PSRING_SERVERS_PER_NODE"] = "0";  // in place of the user's
  if (flags.servers_per_node > 0) {
    if (launched && env->num_nodes > 0 && env->num_nodes != env->size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--servers-per-node: ", env->source, " started this command ",
          env->size, " times on ", env->num_nodes,
          " hosts; with -n, start it once on each, or give --servers"));
    }
    if (s = TakeServersPerNode(flags.servers_per_node, job); !s.ok()) return s;
  }
  SetVariables(line, flags);
  return RunPlan{job, /*becomes_worker=*/false};
}

}  // namespace psring
