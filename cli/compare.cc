#include "cli/compare.h"

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/compare_plan.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "lab/host/temp_dir.h"
#include "lab/page/report_files.h"
#include "lab/page/text_table.h"
#include "lab/study/comparison.h"
#include "lab/study/report.h"
#include "lab/study/run_predictor.h"
#include "lab/study/study_folder.h"
#include "lab/study/study_progress.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"
#include "lab/study/verdict.h"

namespace psring {
namespace {

using Runs = std::vector<std::optional<RunResult>>;  // by the plan's order

int Fail(const absl::Status& status, int exit_code = kExitFailed) {
  std::cerr << "psring compare: " << status.message() << std::endl;
  return exit_code;
}

// Where a run's files lie while it runs: in the study's folder or, where none
// is kept, in a temporary one.
absl::StatusOr<std::string> EmptyScratch(StudyFolder* study,
                                         const TempDir& temporary) {
  if (study != nullptr) return study->MakeScratch();
  const std::string path = absl::StrCat(temporary.path(), "/run");
  std::error_code error;
  std::filesystem::remove_all(path, error);
  std::filesystem::create_directory(path, error);
  if (!error) return path;
  return absl::InternalError(
      absl::StrCat("cannot make ", path, ": ", error.message()));
}

absl::Status Finish(const ComparePlan& plan, const Runs& runs) {
  std::vector<RunResult> finished;
  for (const auto& run : runs) finished.push_back(*run);
  const Comparison comparison =
      Compare(plan.values, finished, plan.target_accuracy);
  std::cout << "\n" << TextTable(ScreenCells(comparison)) << "\n";
  for (const std::string& headline : Headlines(comparison)) {
    std::cout << "* " << headline << "\n";
  }
  const std::vector<std::string> findings = Findings(comparison);
  if (findings.size() > kMaxFindings) {
    std::cout << "* Why, for every set of circumstances: see the report.\n";
  } else {
    for (const std::string& finding : findings) {
      std::cout << "* " << finding << "\n";
    }
  }
  const std::string out = plan.out.empty() ? "." : plan.out;
  absl::Status s =
      WriteReportFile(out, kReportJson, RenderJson(plan.setup, comparison));
  if (!s.ok()) return s;
  s = WriteReportFile(out, kReportHtml, RenderHtml(plan.setup, comparison));
  if (!s.ok()) return s;
  const auto path = std::filesystem::absolute(out).lexically_normal();
  std::cout << "\nreport: " << (path / kReportHtml).string() << std::endl;
  return absl::OkStatus();
}

std::string WhatIsKept(const ComparePlan& plan, const Runs& runs) {
  if (plan.out.empty()) return "";
  return absl::StrCat("; ", NumFinished(runs), " of ", runs.size(),
                      " runs are kept in ", plan.out,
                      ": the same command goes on from there");
}

// Makes the runs that are missing. An error after a message: the exit code.
std::optional<int> RunAll(const ComparePlan& plan, StudyFolder* study,
                          Runs* runs) {
  if (NumFinished(*runs) == runs->size()) return std::nullopt;
  Cancellation cancellation;
  SignalWatcher signals(cancellation);
  const auto predictor = RunPredictor::Create(plan.job.worker_flags);
  if (!predictor.ok()) return Fail(predictor.status());
  const auto temporary = TempDir::Create();
  if (!temporary.ok()) return Fail(temporary.status());
  for (size_t i = 0; i < runs->size(); ++i) {
    if ((*runs)[i]) continue;
    std::cout << RunLine(plan.runs[i], i, *runs) << std::endl;
    const auto scratch = EmptyScratch(study, *temporary);
    if (!scratch.ok()) return Fail(scratch.status());
    int exit_code = 0;
    auto run =
        RunOnce(plan.runs[i], plan.job, *scratch, cancellation, &exit_code);
    if (study != nullptr) study->RemoveScratch();
    if (signals.received() != 0) {
      return Fail(absl::CancelledError(
                      absl::StrCat("interrupted; all processes have ended",
                                   WhatIsKept(plan, *runs))),
                  128 + signals.received());
    }
    if (!run.ok()) {
      return Fail(absl::AbortedError(absl::StrCat(RunLabel(plan.runs[i]), ": ",
                                                  run.status().message(),
                                                  WhatIsKept(plan, *runs))),
                  exit_code);
    }
    run->predicted_step_s = predictor->StepSeconds(*run);
    if (study != nullptr) {
      if (auto s = study->Keep(i, *run); !s.ok()) return Fail(s);
    }
    (*runs)[i] = *std::move(run);
  }
  return std::nullopt;
}

}  // namespace

int RunCompare(const Args& args) {
  auto planned = PlanCompare(args);
  if (const int* code = std::get_if<int>(&planned)) return *code;
  const auto& plan = std::get<ComparePlan>(planned);
  if (auto s = CheckReportPath(plan.out.empty() ? "." : plan.out); !s.ok()) {
    return Fail(s);
  }
  Runs runs(plan.runs.size());
  std::unique_ptr<StudyFolder> study;
  if (!plan.out.empty()) {
    auto opened = StudyFolder::Open(plan.out, plan.setup);
    if (!opened.ok()) return Fail(opened.status());
    study = *std::move(opened);
    auto finished = study->FinishedRuns(plan.runs);
    if (!finished.ok()) return Fail(finished.status());
    runs = *std::move(finished);
    if (const size_t done = NumFinished(runs); done > 0) {
      std::cout << done << " of " << runs.size() << " runs are in " << plan.out
                << " already" << std::endl;
    }
  }
  if (auto code = RunAll(plan, study.get(), &runs)) return *code;
  const absl::Status s = Finish(plan, runs);
  return s.ok() ? 0 : Fail(s);
}

}  // namespace psring
