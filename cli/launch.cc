#include "cli/launch.h"

#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/supervised.h"
#include "common/cluster/environment.h"
#include "common/cluster/security.h"
#include "lab/host/arguments.h"
#include "lab/host/job.h"
#include "lab/host/supervisor.h"

namespace psring {
namespace {

constexpr char kName[] = "psring launch";

constexpr char kDescription[] =
    "Starts a job's processes on this host and shows their output, each line "
    "after its process's name. What follows `--` goes to the workers.";

constexpr char kExample[] =
    "Example: two servers, four workers, ten epochs of drawn digits\n"
    "  psring launch --mode=ps --servers=2 --workers=4 --log-dir=logs -- \\\n"
    "      --model=lenet --data=digits --sync=bsp --epochs=10\n"
    "All flags of a worker: psring worker --help";

struct LaunchFlags {
  Job job;
  Binaries binaries;
  SecurityWish security = {};
  SupervisedFlags supervised;
};

void AddFlags(CommandLine& line, LaunchFlags& flags) {
  Job& job = flags.job;
  line.Add("--mode", job.mode, "Topology; ring: no servers")
      .OneOf({"ps", "ring"});
  line.Add("--servers", job.servers, "Number of servers (--mode=ps)")
      .Range(1, 1024);
  line.Add("--workers", job.workers, "Number of workers").Range(1, 1024);
  line.Add("--threads-per-worker", job.threads_per_worker,
           "Compute threads of each worker; default: its share of this "
           "host's cores")
      .Range(1, 1024)
      .Default("");
  line.Add("--server-flag", job.server_flags,
           "Flag for every server, e.g. "
           "--server-flag=--shard-threads=2; may be repeated")
      .OneValueEach();
  line.Add("--metrics-dir", job.metrics_dir,
           "Folder for every process's metrics (JSON lines)");
  line.Add("--tensorboard", job.tensorboard,
           "Folder for what worker 0 and the servers have for TensorBoard");
  line.Add("--timeline", job.timeline_dir,
           "Folder for the record of what every process does when: see "
           "psring timeline");
  flags.supervised.AddTo(line);
  AddPageFlags(line, job.page, job.page_token_file);
  AddSecurityFlags(line, flags.security, /*several_hosts=*/false);
  AddBinaryFlags(line, flags.binaries);
  line.Footer(kExample);
}

// Whether workers that are started again do not begin from nothing.
bool ContinuesWhenRestarted(const Args& worker_flags) {
  int64_t every = 0;
  return absl::c_linear_search(worker_flags, "--autoresume") &&
         absl::SimpleAtoi(ValueOf(ArgsOf(worker_flags, "--checkpoint-every")),
                          &every) &&
         every > 0;
}

}  // namespace

int Launch(const Args& args) {
  CommandLine line(kDescription, kName);
  LaunchFlags flags;
  AddFlags(line, flags);
  if (auto code = line.ParseBeforeDashes(args, "the workers' flags",
                                         flags.job.worker_flags)) {
    return *code;
  }
  for (const char* flag : {"--servers", "--server-flag"}) {
    if (flags.job.mode == "ring" && line.Has(flag)) {
      return line.UsageError(
          absl::StrCat(flag, ": --mode=ring has no servers"));
    }
  }
  if (absl::Status s = CheckPageFlags(line, flags.job.page); !s.ok()) {
    return line.UsageError(std::string(s.message()));
  }
  for (const Args* passed :
       {&flags.job.worker_flags, &flags.job.server_flags}) {
    absl::Status s =
        CheckFlags(*passed, {"--mode", "--servers", "--workers",
                             "--metrics-dir", "--timeline", "--tensorboard",
                             "--page", "--page-token-file"});
    if (!s.ok()) return line.UsageError(std::string(s.message()));
  }
  if (flags.supervised.max_restarts > 0 &&
      !ContinuesWhenRestarted(flags.job.worker_flags)) {
    return line.UsageError(
        "--max-restarts: a job that is started again continues from a "
        "checkpoint, so give the workers, after `--`, --autoresume, "
        "--checkpoint-dir=DIR and --checkpoint-every=STEPS");
  }
  if (absl::Status s = CheckProgram(flags.binaries.worker); !s.ok()) {
    return Fail(kName, s);
  }
  auto security = NewSecurity(flags.security, ReadVariables());
  if (absl::IsInvalidArgument(security.status())) {
    return line.UsageError(std::string(security.status().message()));
  }
  if (!security.ok()) return Fail(kName, security.status());
  flags.job.security = *std::move(security);
  flags.job.ps_binary = flags.binaries.ps;
  flags.job.worker_binary = flags.binaries.worker;
  return RunSupervised(kName, flags.supervised, flags.job.security,
                       [&](Supervisor& supervisor, const Attempt&) {
                         return StartJob(flags.job, supervisor);
                       });
}

}  // namespace psring
