#include "cli/compare.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/compare_plan.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "common/page/job_page.h"
#include "common/process/open_files.h"
#include "lab/host/process_groups.h"
#include "lab/page/report_files.h"
#include "lab/study/comparison.h"
#include "lab/study/study.h"
#include "lab/study/study_report.h"

namespace psring {
namespace {

constexpr char kName[] = "psring compare";

absl::Status Report(const StudyPlan& plan, const Comparison& comparison,
                    const std::string& out) {
  std::cout << StudyText(comparison) << std::flush;
  const absl::Status s = WriteStudyReport(plan.setup, comparison, out);
  if (s.ok()) {
    std::cout << "\nreport: " << ReportPath(out, kReportHtml) << std::endl;
  }
  if (s.ok() || plan.out.empty()) return s;
  return absl::Status(
      s.code(), absl::StrCat(s.message(), "; the runs are kept in ", plan.out,
                             ": the same command reports on them"));
}

}  // namespace

int RunCompare(const Args& args) {
  const auto planned = PlanCompare(args);
  if (const int* code = std::get_if<int>(&planned)) return *code;
  const auto& plan = std::get<StudyPlan>(planned);
  const std::string out = plan.out.empty() ? "." : plan.out;
  absl::Status s = CheckReportPath(out);
  if (s.ok() && plan.job.script.empty()) {
    s = CheckProgram(plan.job.worker_binary);
  }
  if (!s.ok()) return Fail(kName, s);
  IgnoreBrokenPipes();
  AllowAllFiles();
  Cancellation cancellation;
  ProcessGroups groups;
  SignalWatcher signals(cancellation, ActionsOn(groups));
  std::unique_ptr<JobPage> page;
  if (!plan.page.empty()) {
    auto started = JobPage::Start(plan.page, plan.page_token_file);
    if (!started.ok()) return Fail(kName, started.status());
    page = *std::move(started);
  }
  int exit_code = kExitFailed;
  const auto outcome =
      RunStudy(plan, cancellation, page.get(), &groups, &exit_code);
  const auto fail = [&](const absl::Status& why) {
    const int signal = signals.received();
    return Fail(kName, why, signal != 0 ? 128 + signal : exit_code);
  };
  if (!outcome.ok()) return fail(outcome.status());
  Comparison comparison =
      Compare(plan.values, outcome->finished, plan.aim, outcome->failed,
              !HasFlag(plan.job.worker_flags, "--local-steps"));
  if (!outcome->ended.ok()) {
    comparison.cut_short = absl::StrCat(outcome->finished.size(), " of ",
                                        plan.runs.size(), " runs");
  }
  s = Report(plan, comparison, out);
  if (!s.ok()) Fail(kName, s);
  if (!outcome->ended.ok()) return fail(outcome->ended);
  if (!outcome->failed.empty()) return outcome->failed.front().exit_code;
  if (!outcome->not_kept.ok()) return fail(outcome->not_kept);
  return s.ok() ? 0 : kExitFailed;
}

}  // namespace psring
