#include "cli/timeline.h"

#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "common/trace/step_reader.h"
#include "common/trace/step_times.h"
#include "common/trace/trace_merge.h"
#include "lab/page/timeline_text.h"

namespace psring {
namespace {

constexpr char kName[] = "psring timeline";

constexpr char kDescription[] =
    "Shows what a job's processes did when, from the folder that --timeline "
    "gave them. After a run on several hosts, copy all files into one folder.";

constexpr char kExample[] =
    "Example:\n"
    "  psring launch --workers=2 --timeline=trace -- --steps=200\n"
    "  psring timeline explain trace\n"
    "  psring timeline merge trace     # then open trace/timeline.json in\n"
    "                                  # ui.perfetto.dev or chrome://tracing";

absl::Status PrintExplanation(const std::string& directory) {
  const auto job = ReadSteps(directory);
  if (!job.ok()) return job.status();
  const TraceInfo& info = job->processes.front();
  const Explanation explanation =
      Explain(job->workers, {info.sync, info.staleness, info.backup_workers});
  if (explanation.total.steps == 0) {
    return absl::NotFoundError(
        absl::StrCat("the timelines in ", directory, " hold no whole step"));
  }
  std::cout << ExplanationText(explanation) << "\n"
            << DoubtsText(job->processes,
                          explanation.total.whole /
                              static_cast<double>(explanation.total.steps));
  return absl::OkStatus();
}

absl::Status Merge(const std::string& directory, const std::string& out) {
  const std::string path =
      out.empty() ? absl::StrCat(directory, "/timeline.json") : out;
  const auto processes = MergeTraces(directory, path);
  if (!processes.ok()) return processes.status();
  std::cout << DoubtsText(*processes) << path << ": " << processes->size()
            << " processes; open it in ui.perfetto.dev or chrome://tracing\n";
  return absl::OkStatus();
}

}  // namespace

int RunTimeline(const Args& args) {
  CommandLine line(kDescription, kName);
  std::string directory, out;
  CommandLine& merge = line.AddSubcommand(
      "merge", "Writes one file of all processes, for viewers");
  merge.Add("--out", out, "The file to write; default: DIR/timeline.json");
  CommandLine& explain = line.AddSubcommand(
      "explain", "Prints where a step's time went, and who was waited for");
  for (CommandLine* command : {&merge, &explain}) {
    command->Add("DIR", directory, "Folder that --timeline named").Required();
  }
  line.Footer(kExample);
  if (auto code = line.Parse(args)) return *code;
  const absl::Status status =
      merge.chosen() ? Merge(directory, out) : PrintExplanation(directory);
  return status.ok() ? 0 : Fail(kName, status);
}

}  // namespace psring
