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
#include "lab/page/report_files.h"
#include "lab/study/comparison.h"
#include "lab/study/study.h"
#include "lab/study/study_report.h"

namespace psring {

int RunCompare(const Args& args) {
  constexpr char kName[] = "psring compare";
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
  SignalWatcher signals(cancellation);
  std::unique_ptr<JobPage> page;
  if (!plan.page.empty()) {
    auto started = JobPage::Start(plan.page, plan.page_token_file);
    if (!started.ok()) return Fail(kName, started.status());
    page = *std::move(started);
  }
  int exit_code = kExitFailed;
  const auto outcome = RunStudy(plan, cancellation, page.get(), &exit_code);
  const auto fail = [&](const absl::Status& why) {
    const int signal = signals.received();
    return Fail(kName, why, signal != 0 ? 128 + signal : exit_code);
  };
  if (!outcome.ok()) return fail(outcome.status());
  Comparison comparison = Compare(
      plan.values, outcome->finished, plan.target_accuracy, outcome->failed,
      !HasFlag(plan.job.worker_flags, "--local-steps"));
  if (!outcome->ended.ok()) {
    comparison.cut_short = absl::StrCat(outcome->finished.size(), " of ",
                                        plan.runs.size(), " runs");
  }
  std::cout << StudyText(comparison);
  s = WriteStudyReport(plan.setup, comparison, out);
  if (!s.ok()) return Fail(kName, s);
  std::cout << "\nreport: " << ReportPath(out, kReportHtml) << std::endl;
  if (!outcome->ended.ok()) return fail(outcome->ended);
  return outcome->failed.empty() ? 0 : outcome->failed.front().exit_code;
}

}  // namespace psring
