#include "lab/study/study_report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "lab/page/report_files.h"
#include "lab/page/text_table.h"
#include "lab/study/report.h"
#include "lab/study/summary.h"
#include "lab/study/verdict.h"

namespace psring {

std::string StudyText(const Comparison& comparison) {
  std::string text =
      absl::StrCat("\n", TextTable(ScreenCells(comparison)), "\n");
  if (!comparison.cut_short.empty()) {
    absl::StrAppend(&text, "* CUT SHORT: these figures are of only ",
                    comparison.cut_short, ".\n");
  }
  for (const std::string& headline : Headlines(comparison)) {
    absl::StrAppend(&text, "* ", headline, "\n");
  }
  for (const std::string& failure : Failures(comparison)) {
    absl::StrAppend(&text, "* FAILED, and not in the table: ", failure, "\n");
  }
  const std::vector<std::string> findings = Findings(comparison);
  if (findings.size() > kMaxFindings) {
    absl::StrAppend(&text,
                    "* Why, for every set of circumstances: see the report.\n");
    return text;
  }
  for (const std::string& finding : findings) {
    absl::StrAppend(&text, "* ", finding, "\n");
  }
  return text;
}

absl::Status WriteStudyReport(const StudySetup& setup,
                              const Comparison& comparison,
                              const std::string& directory) {
  absl::Status s =
      WriteReportFile(directory, kReportJson, RenderJson(setup, comparison));
  if (!s.ok()) return s;
  return WriteReportFile(directory, kReportHtml, RenderHtml(setup, comparison));
}

}  // namespace psring
