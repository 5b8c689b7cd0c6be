#include <time.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/trace/metrics_reader.h"
#include "lab/bench/contender.h"
#include "lab/host/job.h"
#include "lab/host/temp_dir.h"

namespace psring {
namespace {

// The process that a prefix (see Hosts) runs as its only child, or `pid` itself
// where it has none.
pid_t BehindPrefix(pid_t pid) {
  std::ifstream children(
      absl::StrCat("/proc/", pid, "/task/", pid, "/children"));
  pid_t child = 0;
  return children >> child ? child : pid;
}

// How long all threads of a process have computed; 0 once it has ended.
double CpuSecondsOf(pid_t pid) {
  clockid_t clock;
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0) return 0;
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

class PsringContender : public Contender {
 public:
  PsringContender(const Stage& stage, std::string operation)
      : stage_(stage), operation_(std::move(operation)) {}

  std::string name() const override { return "psring"; }

  absl::StatusOr<Samples> Run(const Shape& shape) override {
    auto dir = TempDir::Create();
    if (!dir.ok()) return dir.status();
    const Job job = JobOf(shape, dir->path());
    double server_seconds = 0;
    const absl::Status status = RunToEnd(
        stage_,
        [&](Supervisor& supervisor) {
          return StartJob(job, supervisor).status();
        },
        [&](Supervisor& supervisor, const std::string& name,
            absl::string_view line) {
          if (name != "worker 0") return;
          if (line == "measuring") server_seconds -= OfServers(supervisor, job);
          if (line == "measured") server_seconds += OfServers(supervisor, job);
        });
    if (!status.ok()) return status;
    auto samples = ReadSamples(dir->path(), shape.ranks, shape.iterations);
    if (!samples.ok()) return samples;
    samples->server_cpu_seconds = server_seconds;
    auto servers = ReadAllMetrics(dir->path());
    if (!servers.ok()) return servers.status();
    for (const ProcessMetrics& server : *servers) {
      if (!server.end.has_value()) continue;
      samples->server_peak_bytes =
          std::max(samples->server_peak_bytes, server.end->peak_memory_bytes);
    }
    return samples;
  }

 private:
  Job JobOf(const Shape& shape, const std::string& out) const {
    const std::string patience = absl::StrCat(
        "--step-timeout=", absl::ToInt64Seconds(stage_.step_timeout));
    Job job;
    job.mode = operation_ == "pushpull" ? "ps" : "ring";
    job.servers = shape.servers;
    job.workers = shape.ranks;
    job.threads_per_worker = -1;
    job.security = stage_.security;
    job.ps_binary = stage_.ps_binary;
    job.worker_binary = stage_.rank_binary;
    job.server_flags = {"--log-level=warn", patience,
                        absl::StrCat("--metrics-dir=", out)};
    job.worker_flags = {
        "--log-level=warn",
        patience,
        absl::StrCat("--op=", operation_),
        absl::StrCat("--size=", shape.size_bytes),
        absl::StrCat("--iterations=", shape.iterations),
        absl::StrCat("--warmup=", shape.warmup),
        absl::StrCat("--batch=", shape.batch),
        absl::StrCat("--optimizer=", stage_.optimizer),
        absl::StrCat("--out=", out),
    };
    if (stage_.hosts != nullptr) PlaceOnHosts(shape, &job);
    return job;
  }

  void PlaceOnHosts(const Shape& shape, Job* job) const {
    const bool colocated = stage_.placement == Placement::kColocated;
    const int first_server = colocated ? 0 : shape.ranks;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      job->worker_prefixes.push_back(stage_.hosts->PrefixOf(rank));
    }
    for (int s = 0; job->mode == "ps" && s < shape.servers; ++s) {
      job->server_prefixes.push_back(stage_.hosts->PrefixOf(first_server + s));
    }
    job->coordinator_address =
        Hosts::AddressOf(job->mode == "ps" ? first_server : 0);
  }

  static double OfServers(const Supervisor& supervisor, const Job& job) {
    double seconds = 0;
    for (int s = 0; job.mode == "ps" && s < job.servers; ++s) {
      const pid_t pid = supervisor.PidOf(absl::StrCat("ps ", s));
      seconds += CpuSecondsOf(BehindPrefix(pid));
    }
    return seconds;
  }

  const Stage& stage_;
  const std::string operation_;
};

}  // namespace

std::unique_ptr<Contender> MakePsring(const Stage& stage,
                                      const std::string& operation) {
  return std::make_unique<PsringContender>(stage, operation);
}

}  // namespace psring
