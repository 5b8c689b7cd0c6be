#include "lab/study/study.h"

#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lab/host/temp_dir.h"
#include "lab/study/run_predictor.h"
#include "lab/study/study_folder.h"
#include "lab/study/study_progress.h"
#include "lab/study/study_run.h"

namespace psring {
namespace {

// Of a finished run's curve of losses, at most.
constexpr size_t kPointsOnPage = 200;

// One thread's own. All references outlive it.
class Study {
 public:
  Study(const StudyPlan& plan, const Cancellation& cancellation, JobPage* page)
      : plan_(plan),
        cancellation_(cancellation),
        page_(page),
        runs_(plan.runs.size()) {}

  absl::StatusOr<StudyOutcome> Run(int* exit_code) {
    *exit_code = 1;
    absl::Status s = OpenFolder();
    if (s.ok() && NumFinished(runs_) < runs_.size()) s = RunRest(exit_code);
    if (!s.ok() && NumFinished(runs_) == 0) return s;
    outcome_.ended = s;
    for (auto& run : runs_) {
      if (run) outcome_.finished.push_back(*std::move(run));
    }
    UseOneUnit(outcome_.finished);
    return std::move(outcome_);
  }

 private:
  // Takes the finished runs from the folder, where one is kept.
  absl::Status OpenFolder() {
    if (plan_.out.empty()) return absl::OkStatus();
    auto opened = StudyFolder::Open(plan_.out, plan_.setup);
    if (!opened.ok()) return opened.status();
    folder_ = *std::move(opened);
    auto finished = folder_->FinishedRuns(plan_.runs);
    if (!finished.ok()) return finished.status();
    runs_ = *std::move(finished);
    for (const auto& run : runs_) {
      if (run.has_value()) KeepOnPage(*run);
    }
    if (const size_t done = NumFinished(runs_); done > 0) {
      std::cout << done << " of " << runs_.size() << " runs are in "
                << plan_.out << " already" << std::endl;
    }
    return absl::OkStatus();
  }

  absl::Status RunRest(int* exit_code) {
    const auto predictor = RunPredictor::Create(plan_.job.worker_flags);
    if (!predictor.ok()) return predictor.status();
    const auto temporary = TempDir::Create();
    if (!temporary.ok()) return temporary.status();
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i]) continue;
      std::cout << RunLine(plan_.runs[i], i, runs_) << std::endl;
      if (page_ != nullptr) {
        page_->BeginJob(RunTitle(plan_.runs[i], i, runs_.size()));
      }
      const auto scratch = EmptyScratch(*temporary);
      if (!scratch.ok()) {
        return absl::Status(
            scratch.status().code(),
            absl::StrCat(scratch.status().message(), WhatIsKept()));
      }
      RunFailure failure;
      auto run = RunOne(plan_.runs[i], *scratch, *predictor, &failure);
      if (run.ok()) {
        if (absl::Status s = CheckData(*run); !s.ok()) return s;
        Keep(i, *run);
      }
      if (!cancellation_.status().ok()) {
        return absl::CancelledError(absl::StrCat(
            "interrupted; all processes have ended", WhatIsKept()));
      }
      if (!run.ok()) {
        if (auto s = TakeFailure(plan_.runs[i], run.status(), failure);
            !s.ok()) {
          *exit_code = failure.exit_code;
          return s;
        }
        continue;
      }
      KeepOnPage(*runs_[i]);
    }
    if (NumFinished(runs_) > 0) return absl::OkStatus();
    *exit_code = outcome_.failed.front().exit_code;
    return absl::AbortedError("every run has failed; see above");
  }

  absl::StatusOr<RunResult> RunOne(const Point& point,
                                   const std::string& scratch,
                                   const RunPredictor& predictor,
                                   RunFailure* failure) {
    auto run =
        RunOnce(point, plan_.job, scratch, cancellation_, page_, failure);
    if (folder_ != nullptr) folder_->RemoveScratch();
    if (run.ok() && plan_.job.script.empty()) {
      run->predicted_step_s = predictor.StepSeconds(*run);
    }
    return run;
  }

  // Runs of other data cannot be held against each other. (Those of a folder
  // may be of an earlier psring, which did not tell.)
  absl::Status CheckData(const RunResult& run) const {
    for (const auto& other : runs_) {
      if (!other.has_value() || other->data.empty() ||
          other->data == run.data) {
        continue;
      }
      return absl::FailedPreconditionError(absl::StrCat(
          RunLabel(run.point), " was trained on ", run.data, ", and ",
          RunLabel(other->point), " on ", other->data,
          ": restore the files of --data, or choose another --out"));
    }
    return absl::OkStatus();
  }

  // One that the folder does not take is in the report at least.
  void Keep(size_t i, const RunResult& run) {
    runs_[i] = run;
    if (folder_ == nullptr) return;
    const absl::Status kept = folder_->Keep(i, run);
    if (kept.ok()) return;
    std::cerr << "psring compare: " << RunLabel(run.point) << ": "
              << kept.message() << "\nThe other runs go on" << std::endl;
    outcome_.not_kept.Update(absl::Status(
        kept.code(),
        absl::StrCat(RunLabel(run.point), " is not kept: ", kept.message(),
                     ". The same command runs it again")));
  }

  // An error ends the study.
  absl::Status TakeFailure(const Point& point, const absl::Status& status,
                           const RunFailure& failure) {
    const std::string why(status.message());
    const bool first = NumFinished(runs_) == 0 && outcome_.failed.empty();
    if (first && !failure.others_may_succeed) {
      return absl::AbortedError(
          absl::StrCat(RunLabel(point), ": ", why, WhatIsKept()));
    }
    outcome_.failed.push_back({point, why, failure.exit_code});
    const bool last =
        NumFinished(runs_) + outcome_.failed.size() == runs_.size();
    std::cerr << "psring compare: " << RunLabel(point) << ": " << why
              << (last ? "" : "\nThe other runs go on") << std::endl;
    return absl::OkStatus();
  }

  void KeepOnPage(const RunResult& run) {
    if (page_ == nullptr) return;
    EarlierJob job;
    job.name = RunLabel(run.point);
    const size_t every = run.steps.size() / kPointsOnPage + 1;
    for (size_t i = 0; i < run.steps.size(); i += every) {
      job.losses.push_back({run.steps[i].seconds, run.steps[i].loss});
    }
    for (const EpochSample& epoch : run.epochs) {
      if (!std::isnan(epoch.test_accuracy)) {
        job.accuracies.push_back({epoch.seconds, epoch.test_accuracy});
      }
      if (!std::isnan(epoch.test_loss)) {
        job.test_losses.push_back({epoch.seconds, epoch.test_loss});
      }
    }
    page_->Keep(std::move(job));
  }

  // Where a run's files lie while it runs: in the study's folder or, where none
  // is kept, in a temporary one.
  absl::StatusOr<std::string> EmptyScratch(const TempDir& temporary) {
    if (folder_ != nullptr) return folder_->MakeScratch();
    const std::string path = absl::StrCat(temporary.path(), "/run");
    std::error_code error;
    std::filesystem::remove_all(path, error);
    std::filesystem::create_directory(path, error);
    if (!error) return path;
    return absl::InternalError(
        absl::StrCat("cannot make ", path, ": ", error.message()));
  }

  std::string WhatIsKept() const {
    if (folder_ == nullptr) return "";
    return absl::StrCat("; ", NumFinished(runs_), " of ", runs_.size(),
                        " runs are kept in ", plan_.out,
                        ": the same command resumes from there");
  }

  const StudyPlan& plan_;
  const Cancellation& cancellation_;
  JobPage* const page_;                         // null: there is none
  std::unique_ptr<StudyFolder> folder_;         // null: none is kept
  std::vector<std::optional<RunResult>> runs_;  // by the plan's order
  StudyOutcome outcome_;
};

}  // namespace

absl::StatusOr<StudyOutcome> RunStudy(const StudyPlan& plan,
                                      const Cancellation& cancellation,
                                      JobPage* page, ProcessGroups* groups,
                                      int* exit_code) {
  StudyPlan with_groups = plan;
  with_groups.job.groups = groups;
  return Study(with_groups, cancellation, page).Run(exit_code);
}

}  // namespace psring
