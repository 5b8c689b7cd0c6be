#include "cli/run.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/supervised.h"
#include "common/cluster/environment.h"
#include "lab/host/script_job.h"
#include "lab/host/supervisor.h"

namespace psring {
namespace {

constexpr char kName[] = "psring run";

constexpr char kDescription[] =
    "Runs a program of your own as the workers of a job on this host: a script "
    "that imports psring. Flags choose its topology. What follows `--` is the "
    "program's command line.";

constexpr char kExample[] =
    "Without --sync, --update or --compress the script's own choice counts, "
    "else psring's default.\n"
    "Examples:\n"
    "  psring run -n 4 -- python3 train.py\n"
    "  psring run -n 4 --mode=ps --servers=2 --sync=async -- python3 train.py\n"
    "and on two hosts, the first of which is 10.0.0.1:\n"
    "  psring run -n 2 --size=4 --coordinator=10.0.0.1:7000 -- python3 t.py\n"
    "  psring run -n 2 --size=4 --coordinator=10.0.0.1:7000 --first-rank=2 \\\n"
    "      -- python3 t.py";

struct RunFlags {
  ScriptJob job;
  std::string log_dir;
  // What scripts read from their environment; empty: not set.
  std::string sync, update, compress, metrics_dir;
};

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
  line.Add("--sync", flags.sync,
           "Consistency (--mode=ps): bsp, ssp:K (K steps ahead at most) or "
           "async");
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
  line.Add("--log-dir", flags.log_dir,
           "Folder that keeps every process's output");
  line.Footer(kExample);
}

// What the user's environment says of the job, where flags do not.
absl::Status TakeVariables(const CommandLine& line, ScriptJob& job) {
  const Variables variables = ReadVariables();
  const auto mode = variables.find("PSRING_MODE");
  if (!line.Has("--mode") && mode != variables.end() && !mode->second.empty()) {
    job.mode = mode->second;
    if (job.mode != "ring" && job.mode != "ps" && job.mode != "ddp") {
      return absl::InvalidArgumentError(
          absl::StrCat("PSRING_MODE=", job.mode, ": it is ring, ps or ddp"));
    }
  }
  const auto servers = variables.find("PSRING_SERVERS");
  if (!line.Has("--servers") && servers != variables.end() &&
      !servers->second.empty() &&
      (!absl::SimpleAtoi(servers->second, &job.servers) || job.servers < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "PSRING_SERVERS=", servers->second, ": not a number of servers"));
  }
  return absl::OkStatus();
}

}  // namespace

int RunScript(const Args& args) {
  CommandLine line(kDescription, kName);
  RunFlags flags;
  AddFlags(line, flags);
  const auto separator = std::find(args.begin(), args.end(), "--");
  if (auto code = line.Parse(Args(args.begin(), separator))) return *code;
  if (separator != args.end()) {
    flags.job.command.assign(separator + 1, args.end());
  }
  if (absl::Status s = TakeVariables(line, flags.job); !s.ok()) {
    return line.UsageError(std::string(s.message()));
  }
  if (flags.job.mode != "ps" && (line.Has("--servers") || line.Has("--sync"))) {
    return line.UsageError(absl::StrCat(
        line.Has("--servers") ? "--servers" : "--sync",
        ": only --mode=ps has servers; the mode is ", flags.job.mode));
  }
  for (const auto& [name, value] :
       {std::pair("PSRING_SYNC", &flags.sync),
        std::pair("PSRING_UPDATE", &flags.update),
        std::pair("PSRING_COMPRESS", &flags.compress)}) {
    if (!value->empty()) flags.job.extra[name] = *value;
  }
  if (!flags.metrics_dir.empty()) {
    flags.job.extra["PSRING_METRICS_DIR"] =
        std::filesystem::absolute(flags.metrics_dir).string();
  }
  if (absl::Status s = CheckScriptJob(flags.job); !s.ok()) {
    return line.UsageError(std::string(s.message()));
  }
  // Its coordinator lives as long as the processes.
  std::unique_ptr<RunningScript> running;
  return RunSupervised(kName, flags.log_dir, [&](Supervisor& supervisor) {
    auto started = RunningScript::Start(flags.job, supervisor);
    if (started.ok()) running = *std::move(started);
    return started.status();
  });
}

}  // namespace psring
