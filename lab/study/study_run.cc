#include "lab/study/study_run.h"

#include <errno.h>
#include <string.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/address.h"
#include "common/optim/optimizer.h"
#include "common/optim/sync_policy.h"
#include "common/page/job_state.h"
#include "common/trace/metrics_reader.h"
#include "lab/host/arguments.h"
#include "lab/host/hosts.h"
#include "lab/host/job_watch.h"
#include "lab/host/link_spec.h"
#include "lab/host/other_load.h"
#include "lab/host/script_job.h"
#include "lab/host/supervisor.h"
#include "lab/page/job_lines.h"
#include "lab/study/printed_metric.h"
#include "lab/study/progress.h"
#include "lab/study/way_spec.h"
#include "lab/study/weights.h"

namespace psring {
namespace {

ScriptJob ScriptOf(const Job& job) {
  ScriptJob script;
  script.mode = job.mode;
  script.servers = job.servers;
  script.workers = job.workers;
  script.threads_per_worker = job.threads_per_worker;
  script.command = job.script;
  script.security = job.security;
  script.extra = job.script_variables;
  script.extra["PSRING_METRICS_DIR"] =
      std::filesystem::absolute(job.metrics_dir).string();
  // No run goes on from what another has committed.
  script.extra["PSRING_STATE_DIR"] = "";
  return script;
}

// The processes of a job, until it goes.
class RunningJob {
 public:
  // Returns where its coordinator listens.
  absl::StatusOr<HostPort> Start(const Job& job, Supervisor& supervisor) {
    if (job.script.empty()) return StartJob(job, supervisor);
    ScriptJob plan = ScriptOf(job);
    if (auto s = TakeJoinTimeout(plan); !s.ok()) return s;
    if (auto s = TakeHeartbeatTimeout(plan); !s.ok()) return s;
    auto script = RunningScript::Start(plan, supervisor);
    if (!script.ok()) return script.status();
    script_ = *std::move(script);
    return script_->coordinator();
  }

 private:
  std::unique_ptr<RunningScript> script_;
};

// Runs the processes to their ends, with progress. `on_line`: of their output.
absl::Status Train(
    const std::string& name, const Job& job, const Cancellation& cancellation,
    std::function<void(const std::string&, absl::string_view)> on_line,
    JobPage* page, RunFailure* failure) {
  MetricsReader worker0(absl::StrCat(job.metrics_dir, "/worker-0.jsonl"));
  Progress progress(stdout, name);
  std::unique_ptr<JobWatch> watch;
  absl::Status read;
  const auto show = [&] {
    if (read.ok()) read = worker0.Read();
    progress.Show(worker0.metrics(), watch == nullptr
                                         ? std::vector<std::string>()
                                         : watch->lines());
  };
  SupervisorOptions options;
  Supervisor* processes = nullptr;
  bool hopeless = false;
  options.on_tick = [&] {
    show();
    // Before training has begun, the others would wait for the one that has
    // failed until they may not.
    if (hopeless || !processes->first_failure() ||
        !worker0.metrics().role.empty()) {
      return;
    }
    hopeless = true;
    processes->Stop(kFormingGrace);
  };
  options.on_line = std::move(on_line);
  options.groups = job.groups;
  RunningJob running;
  Supervisor supervisor(cancellation, options);
  processes = &supervisor;
  const auto coordinator = running.Start(job, supervisor);
  const absl::Status started = coordinator.status();
  if (!started.ok()) supervisor.Stop();
  const bool watched = progress.live() || page != nullptr;
  // The coordinator of a job on hosts of its own is not reached from here.
  if (started.ok() && watched && job.worker_prefixes.empty()) {
    auto watching = JobWatch::Start(job.security, *coordinator,
                                    [page](const JobState& state) {
                                      if (page != nullptr)
                                        page->Show(Now(), state.view());
                                      return SlowestLine(state);
                                    });
    if (watching.ok()) watch = *std::move(watching);
  }
  supervisor.Wait();
  watch.reset();
  show();
  if (!cancellation.status().ok()) return cancellation.status();
  if (supervisor.first_failure()) {
    failure->exit_code = supervisor.first_failure()->ending.shell_code();
    failure->others_may_succeed = !worker0.metrics().role.empty();
    return absl::AbortedError(ToString(*supervisor.first_failure()));
  }
  if (!started.ok()) return started;
  failure->others_may_succeed = true;
  return read;
}

// What the processes print that their results need.
class Printed {
 public:
  Printed(const std::string& metric, bool is_loss) : metric_(metric, is_loss) {}

  void Take(const std::string& name, absl::string_view line) {
    if (name == "worker 0") metric_.Take(line);
    if (full_disk_.empty() && absl::StrContains(line, strerror(ENOSPC))) {
      full_disk_ = absl::StrCat(name, " says: ", line);
    }
  }

  const PrintedMetric& metric() const { return metric_; }

  // `status`, which came of a full disk if a process has told of one: processes
  // train on when they cannot write their metrics.
  absl::Status Explain(const absl::Status& status) const {
    if (full_disk_.empty()) return status;
    const bool told = absl::StrContains(status.message(), strerror(ENOSPC));
    return absl::ResourceExhaustedError(absl::StrCat(
        status.message(), ". The disk is full",
        told ? "" : absl::StrCat(": ", full_disk_),
        ". Free space there, or choose another folder with --out (without it, "
        "with TMPDIR)"));
  }

 private:
  PrintedMetric metric_;
  std::string full_disk_;  // who has told of it, and how; empty: nobody
};

// `checkpoints` empty: the workers tell of their weights in their metrics.
absl::StatusOr<RunResult> Collect(const Point& point,
                                  const std::string& metrics_dir,
                                  const std::string& checkpoints,
                                  const PrintedMetric& printed) {
  auto all = ReadAllMetrics(metrics_dir);
  if (!all.ok()) return all.status();
  printed.AddTo(*all);
  auto result = Summarize(point, *all);
  if (result.ok()) result->printed_percent = printed.percent();
  if (!result.ok() || checkpoints.empty()) return result;
  const auto weights = FindLastWeights(checkpoints);
  if (!weights.ok()) return weights.status();
  const auto crc = Crc32OfFile(*weights);
  if (!crc.ok()) return crc.status();
  result->weights_crc32 = *crc;
  return result;
}

absl::StatusOr<std::unique_ptr<Hosts>> PlaceOnHosts(const Point& point,
                                                    Job* job) {
  const auto link = ParseLink(ValueOf(point, "link"), job->workers);
  if (!link.ok()) return link.status();
  const int servers = job->mode == "ps" ? job->servers : 0;
  auto hosts = Hosts::Create(link->RatesOf(job->workers, servers));
  if (!hosts.ok()) return hosts.status();
  for (int rank = 0; rank < job->workers; ++rank) {
    job->worker_prefixes.push_back((*hosts)->PrefixOf(rank));
  }
  for (int s = 0; s < servers; ++s) {
    job->server_prefixes.push_back((*hosts)->PrefixOf(job->workers + s));
  }
  job->coordinator_address = Hosts::AddressOf(servers > 0 ? job->workers : 0);
  return hosts;
}

void Erase(const std::function<bool(const std::string& name)>& which,
           std::vector<std::string>& flags) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (!which(FlagName(flags[i]))) {
      kept.push_back(flags[i]);
    } else if (FlagName(flags[i]) == flags[i] && i + 1 < flags.size() &&
               !absl::StartsWith(flags[i + 1], "--")) {
      ++i;  // its value
    }
  }
  flags = std::move(kept);
}

// A way's flag, "--lr=0.1", in place of all ways'. --steps and --epochs exclude
// each other.
void Replace(const std::string& flag, std::vector<std::string>& flags) {
  const auto is_length = [](const std::string& name) {
    return name == "--steps" || name == "--epochs";
  };
  const std::string name = FlagName(flag);
  const auto is_replaced = [&](const std::string& other) {
    return other == name || (is_length(other) && is_length(name));
  };
  Erase(is_replaced, flags);
  flags.push_back(flag);
}

}  // namespace

// What a script reads of the point from its environment.
void SetVariables(const Point& point, Job& job) {
  const WaySpec way = WayOf(point);
  std::map<std::string, std::string>& variables = job.script_variables;
  if (way.ddp) variables["PSRING_MODE"] = "ddp";
  variables["PSRING_SYNC"] = way.has_servers() ? way.sync() : "";
  variables["PSRING_STALENESS"] = "";
  variables["PSRING_SERVERS_PER_NODE"] = "0";
  variables["PSRING_SEED"] = ValueOf(point, "seed");
  // "none", too: this program's environment may have another.
  variables["PSRING_COMPRESS"] = ValueOf(point, "compress");
}

Job JobOf(const Point& point, Job job) {
  const WaySpec way = WayOf(point);
  job.mode = way.has_servers() ? "ps" : "ring";
  job.workers = std::stoi(ValueOf(point, "workers"));
  const std::string& servers = ValueOf(point, "servers");
  if (servers != kAny) job.servers = std::stoi(servers);
  if (!job.script.empty()) {
    SetVariables(point, job);
    return job;
  }
  std::vector<std::string>& flags = job.worker_flags;
  // All ways' momentum, not its own, which the worker refuses.
  if (IsAdam(ValueOf(ArgsOf(way.Flags(), "--optimizer")))) {
    Erase([](const std::string& name) { return name == "--momentum"; }, flags);
  }
  for (const std::string& flag : way.Flags()) Replace(flag, flags);
  for (size_t i = 0; i < Axes().size(); ++i) {
    const char* flag = Axes()[i].worker_flag;
    if (flag == nullptr || point[i] == kNone) continue;
    flags.push_back(absl::StrCat(flag, "=", point[i]));
  }
  return job;
}

absl::StatusOr<RunResult> RunOnce(const Point& point, const Job& base,
                                  const std::string& directory,
                                  const Cancellation& cancellation,
                                  JobPage* page, RunFailure* failure) {
  *failure = RunFailure();
  Job job = JobOf(point, base);
  const bool script = !job.script.empty();
  job.metrics_dir = absl::StrCat(directory, "/metrics");
  const std::string checkpoints =
      script ? "" : absl::StrCat(directory, "/checkpoints");
  std::error_code error;
  std::filesystem::create_directory(job.metrics_dir, error);
  if (!script) {
    std::filesystem::create_directory(checkpoints, error);
    job.worker_flags.push_back(absl::StrCat("--checkpoint-dir=", checkpoints));
  }
  std::unique_ptr<Hosts> hosts;  // they end with it
  if (ValueOf(point, "link") != kNone) {
    auto made = PlaceOnHosts(point, &job);
    if (!made.ok()) return made.status();
    hosts = *std::move(made);
  }
  Printed printed(job.metric, job.metric_is_loss);
  const Time start = Now();
  const OtherLoad others;
  const absl::Status s = Train(
      ValueOf(point, kWayAxis), job, cancellation,
      [&printed](const std::string& name, absl::string_view line) {
        printed.Take(name, line);
      },
      page, failure);
  if (!s.ok()) return printed.Explain(s);
  auto result = Collect(point, job.metrics_dir, checkpoints, printed.metric());
  if (!result.ok()) {
    const absl::Status why = printed.Explain(result.status());
    failure->others_may_succeed = !absl::IsInvalidArgument(why);
    return why;
  }
  result->wall_seconds = absl::ToDoubleSeconds(Now() - start);
  result->other_cores = others.Cores();
  return result;
}

}  // namespace psring
