#include "cli/mode_run.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/metrics_reader.h"
#include "cli/progress.h"
#include "cli/supervisor.h"
#include "cli/weights.h"

namespace psring {
namespace {

void AddModeFlags(const ModeSpec& spec, const std::string& checkpoints,
                  Job* job) {
  job->mode = spec.mode;
  std::vector<std::string>& flags = job->worker_flags;
  if (spec.mode == "ps") flags.push_back(absl::StrCat("--sync=", spec.sync));
  if (spec.sync == "ssp") {
    flags.push_back(absl::StrCat("--staleness=", spec.staleness));
  }
  flags.push_back(absl::StrCat("--checkpoint-dir=", checkpoints));
}

// Runs the processes to their ends, with progress.
absl::Status Train(const ModeSpec& spec, const Job& job,
                   const Cancellation& cancellation, int* exit_code) {
  MetricsReader worker0(absl::StrCat(job.metrics_dir, "/worker-0.jsonl"));
  Progress progress(stdout, TerminalColumns(stdout), spec.name);
  absl::Status read;
  const auto show = [&] {
    if (read.ok()) read = worker0.Read();
    progress.Show(worker0.metrics());
  };
  SupervisorOptions options;
  options.on_tick = show;
  Supervisor supervisor(cancellation, options);
  const absl::Status started = StartJob(job, supervisor);
  if (!started.ok()) supervisor.Stop();
  supervisor.Wait();
  show();
  progress.Finish();
  if (!cancellation.status().ok()) return cancellation.status();
  if (supervisor.first_failure()) {
    *exit_code = supervisor.first_failure()->ending.shell_code();
    return absl::AbortedError(ToString(*supervisor.first_failure()));
  }
  return started.ok() ? read : started;
}

absl::StatusOr<ModeRun> Collect(const ModeSpec& spec,
                                const std::string& metrics,
                                const std::string& checkpoints) {
  const auto all = ReadAllMetrics(metrics);
  if (!all.ok()) return all.status();
  auto result = Summarize(spec, *all);
  if (!result.ok()) return result.status();
  const auto weights = FindLastWeights(checkpoints);
  if (!weights.ok()) return weights.status();
  const auto crc = Crc32OfFile(*weights);
  if (!crc.ok()) return crc.status();
  result->weights_crc32 = *crc;
  return ModeRun{*std::move(result), *weights};
}

}  // namespace

absl::StatusOr<ModeRun> RunMode(const ModeSpec& spec, Job job,
                                const std::string& directory,
                                const Cancellation& cancellation,
                                int* exit_code) {
  *exit_code = 1;
  job.metrics_dir = absl::StrCat(directory, "/metrics");
  const std::string checkpoints = absl::StrCat(directory, "/checkpoints");
  std::error_code error;
  std::filesystem::create_directory(job.metrics_dir, error);
  std::filesystem::create_directory(checkpoints, error);
  AddModeFlags(spec, checkpoints, &job);
  const absl::Status s = Train(spec, job, cancellation, exit_code);
  if (!s.ok()) return s;
  return Collect(spec, job.metrics_dir, checkpoints);
}

}  // namespace psring
