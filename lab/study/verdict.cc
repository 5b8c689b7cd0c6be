#include "lab/study/verdict.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lab/study/study_progress.h"
#include "lab/study/wording.h"

namespace psring {

using Strings = std::vector<std::string>;

Strings Questions(const Comparison& comparison) {
  Strings questions;
  for (const Axis& axis : Axes()) {
    if (Varies(comparison, axis)) questions.push_back(axis.question);
  }
  if (comparison.goal.score == Score::kTestLoss) {
    for (std::string& question : questions) {
      absl::StrReplaceAll({{"accuracy", "loss"}}, &question);
    }
  }
  if (questions.empty()) questions.push_back("How does this training go?");
  return questions;
}

Strings Verdicts(const Comparison& comparison) {
  Strings verdicts = Headlines(comparison);
  for (std::string& finding : Findings(comparison)) {
    verdicts.push_back(std::move(finding));
  }
  return verdicts;
}

Strings Faults(const Comparison& comparison) {
  Strings faults;
  for (const char* axis : {"slow", "link"}) {
    for (const std::string& spec : comparison.values[AxisIndex(axis)]) {
      if (spec == kNone) continue;
      faults.push_back(absl::StrCat("--", axis, "=", spec));
    }
  }
  return faults;
}

Strings Failures(const Comparison& comparison) {
  Strings failures;
  for (const FailedRun& run : comparison.failed) {
    // How the process ended, and what it said last: why, unless it was killed.
    const std::vector<absl::string_view> lines =
        absl::StrSplit(run.why, '\n', absl::SkipWhitespace());
    std::string failure = absl::StrCat(
        RunLabel(run.point), ": ",
        lines.empty() ? "" : absl::StripSuffix(lines[0], "; its last lines:"));
    if (lines.size() > 1) {
      absl::StrAppend(&failure, "; ", absl::StripAsciiWhitespace(lines.back()));
    }
    failures.push_back(std::move(failure));
  }
  return failures;
}

}  // namespace psring
