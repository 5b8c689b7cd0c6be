#include "cli/predict.h"

#include <iostream>
#include <string>

#include "cli/command.h"
#include "cli/predict_plan.h"
#include "cli/version.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "lab/bench/prediction_check.h"
#include "lab/page/report_files.h"
#include "lab/predict/predict_report.h"
#include "lab/predict/predict_run.h"

namespace psring {
namespace {

constexpr char kName[] = "psring predict";

constexpr char kDescription[] =
    "Predicts how long a synchronous training step takes in every topology on "
    "hosts that you do not have: it simulates links, servers, threads and slow "
    "workers event by event. Prints a table and writes predict.html. Measure "
    "on a quiet host: other programs lengthen what is measured.";

absl::Status Report(const PredictStudy& study, const PredictFlags& flags) {
  std::cout << PredictText(study);
  if (absl::Status s = WritePredictReport(study, flags.out); !s.ok()) return s;
  std::cout << "\nreport: " << ReportPath(flags.out, kPredictHtml) << std::endl;
  if (flags.json.empty()) return absl::OkStatus();
  return WritePredictJson(study, flags.json);
}

// Before anything is measured.
absl::Status CheckReportPaths(const PredictFlags& flags) {
  const absl::Status s = CheckReportPath(flags.out, {kPredictHtml});
  return s.ok() && !flags.json.empty() ? CheckPredictJson(flags.json) : s;
}

absl::Status PredictAndReport(const PredictFlags& flags,
                              const PredictOptions& options, const Args& args,
                              const Cancellation& cancellation) {
  if (absl::Status s = CheckReportPaths(flags); !s.ok()) return s;
  auto study = RunPrediction(options, cancellation);
  if (!study.ok()) return study.status();
  study->command = CommandText("psring predict", args);
  study->created = DateAndTime();
  study->commit = BuiltCommit();
  return Report(*study, flags);
}

}  // namespace

int RunPredict(const Args& args) {
  CommandLine line(kDescription, kName);
  PredictFlags flags;
  AddPredictFlags(line, flags);
  if (auto code = line.Parse(args)) return *code;
  const auto plan = PlanPredict(line, flags);
  if (!plan.ok()) {
    return line.UsageError(std::string(plan.status().message()));
  }
  Cancellation cancellation;
  SignalWatcher signals(cancellation, {.patient = true});
  const absl::Status status =
      flags.check ? CheckPredictions(plan->check, cancellation)
                  : PredictAndReport(flags, plan->options, args, cancellation);
  return ExitCode(kName, status, signals.received());
}

}  // namespace psring
