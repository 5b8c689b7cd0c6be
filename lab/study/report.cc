#include "lab/study/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/optim/sync_policy.h"
#include "lab/page/format.h"
#include "lab/page/html.h"
#include "lab/page/report_parts.h"
#include "lab/study/report_charts.h"
#include "lab/study/report_json.h"
#include "lab/study/report_template.h"
#include "lab/study/study_charts.h"
#include "lab/study/summary.h"
#include "lab/study/verdict.h"
#include "lab/study/way_spec.h"

namespace psring {
namespace {

std::string Values(const Comparison& comparison, absl::string_view axis) {
  return absl::StrJoin(comparison.values[AxisIndex(axis)], ", ");
}

// " (21,840 parameters)"; nothing of a script that does not tell.
std::string ParametersText(const Comparison& comparison) {
  int64_t most = 0;
  for (const Variant& variant : comparison.variants) {
    most = std::max(most, variant.runs[0].num_parameters);
  }
  return most == 0 ? ""
                   : absl::StrCat(" (", FormatCount(static_cast<double>(most)),
                                  " parameters)");
}

// Not of the built-in trainer, whose flags may be quoted.
bool IsOfScript(const StudySetup& setup) {
  const std::string& passed_on = setup.Flag("--");
  return !passed_on.empty() && !absl::StartsWith(passed_on, "-") &&
         !absl::StartsWith(passed_on, "'-");
}

std::string Introduction(const StudySetup& setup,
                         const Comparison& comparison) {
  if (IsOfScript(setup)) {
    return absl::StrCat(setup.Flag("--"), ParametersText(comparison),
                        " is run in each way. It finds the seed of a run in "
                        "PSRING_SEED. All processes ran on one machine: ",
                        MachineText(setup.machine), ".");
  }
  const std::string& steps = setup.Flag("--steps");
  return absl::StrCat(
      setup.Flag("--model"), ParametersText(comparison), " is trained on ",
      setup.Flag("--data"), " for ",
      steps == "0" ? absl::StrCat(setup.Flag("--epochs"), " epochs")
                   : absl::StrCat(steps, " steps"),
      ", from the same first weights and over the same batches each "
      "time; what differs is said beside each line. All processes ran on one "
      "machine: ",
      MachineText(setup.machine), ".");
}

std::string FaultsHtml(const Comparison& comparison) {
  const std::vector<std::string> faults = Faults(comparison);
  if (faults.empty()) return "";
  return HtmlWarning(absl::StrCat(
      "<strong>Faults of speed were injected on purpose.</strong> Workers or "
      "their links were slowed down: <code>",
      EscapeHtml(absl::StrJoin(faults, " ")), "</code>."));
}

std::string FailuresHtml(const Comparison& comparison) {
  const std::vector<std::string> failures = Failures(comparison);
  if (failures.empty()) return "";
  return HtmlWarning(
      absl::StrCat("<strong>These runs failed, and nothing below counts them."
                   "</strong>",
                   HtmlList(failures)));
}

std::string HeadlinesHtml(const Comparison& comparison) {
  std::string html;
  if (!comparison.cut_short.empty()) {
    html = HtmlWarning(absl::StrCat(
        "<strong>The comparison was cut short.</strong> All below is of ",
        comparison.cut_short, " alone."));
    absl::StrAppend(&html, "\n");
  }
  for (const std::string& headline : Headlines(comparison)) {
    absl::StrAppend(&html, "<p class=\"lead\">", EscapeHtml(headline),
                    "</p>\n");
  }
  return html;
}

// Many are folded away.
std::string FindingsHtml(const Comparison& comparison) {
  const std::vector<std::string> findings = Findings(comparison);
  if (findings.size() <= kMaxFindings) return HtmlList(findings);
  return absl::StrCat(
      "<details><summary>Why, for every set of circumstances"
      "</summary>",
      HtmlList(findings), "</details>");
}

std::string SeedsText(const Comparison& comparison) {
  size_t least = 0, most = 0;
  for (const Variant& variant : comparison.variants) {
    const size_t seeds = variant.runs.size();
    least = most == 0 ? seeds : std::min(least, seeds);
    most = std::max(most, seeds);
  }
  if (most <= 1) {
    return "One seed: how far other seeds would scatter is not known.";
  }
  return absl::StrCat("Means over ",
                      least < most ? absl::StrCat(least, " to ") : "", most,
                      " seeds, and below the lowest and the highest.");
}

std::string TargetText(const StudySetup& setup, const Comparison& comparison) {
  const Goal& goal = comparison.goal;
  const bool by_loss = goal.score == Score::kTestLoss;
  const std::string target =
      absl::StrCat(by_loss ? "That loss" : "That accuracy", ", ",
                   goal.Text(goal.target), ", ");
  const std::string& given =
      setup.Flag(by_loss ? "--target-loss" : "--target-accuracy");
  if (given != "auto" && !given.empty()) {
    return absl::StrCat(target, "was given.");
  }
  return absl::StrCat(target, "is what all ways reach with every seed",
                      comparison.failed.empty() ? "" : " that did not fail",
                      by_loss
                          ? ", but for those that end far above the best: by a "
                            "tenth of it, or by "
                            "a quarter of how far it came."
                          : ", but for those that end a tenth below the best.");
}

std::string TimesText(const StudySetup& setup, const Goal& goal) {
  const char* const end = goal.score == Score::kTestLoss
                              ? " at the loss to reach or below."
                              : " at the accuracy to reach or above.";
  return IsOfScript(setup)
             ? absl::StrCat(
                   "Times count from the first step on, with evaluations, and "
                   "end at the first evaluation",
                   end,
                   " Steps a second are those from the first step to the last.")
             : absl::StrCat(
                   "Times count training only, without evaluations, and end at "
                   "the first evaluation, one after each epoch,",
                   end);
}

std::string RatesText(const StudySetup& setup) {
  const std::string lines =
      " thin lines reach from the slowest to the fastest seed. Every run gives "
      "its workers the same number of threads";
  return IsOfScript(setup)
             ? absl::StrCat("A step is one of all workers together;", lines,
                            ".")
             : absl::StrCat("Images a second of all workers together;", lines,
                            " and images a step, so that more workers work on "
                            "larger steps.");
}

std::string SharedMemoryText(const StudySetup& setup) {
  const std::string shared =
      "Processes that share this host's memory send notices only, so they stay "
      "far below it; ";
  return IsOfScript(setup)
             ? absl::StrCat(shared,
                            "psring.init(same_host=\"off\") makes them send "
                            "everything. What torch.distributed sends is not "
                            "known. A script's servers are threads of its "
                            "workers: the memory shown for both is the "
                            "process's.")
             : absl::StrCat(shared,
                            "--same-host=off makes them send everything.");
}

Terms SetupTerms(const StudySetup& setup, const Comparison& comparison) {
  return {
      {"Machine", MachineText(setup.machine)},
      {"Software",
       absl::StrCat(
           "psring ", setup.commit,
           IsOfScript(setup) ? "" : absl::StrCat(", libtorch ", setup.libtorch),
           ", ZeroMQ ", setup.zeromq)},
      {"Workers", absl::StrCat(Values(comparison, "workers"),
                               "; threads of "
                               "each: ",
                               setup.threads_per_worker)},
      {"Servers", absl::StrCat(Values(comparison, "servers"),
                               " in the ps modes, none in a ring")},
      {"Seeds", Values(comparison, "seed")},
      {"Order",
       "one run after the other; all ways with the first seed, then "
       "with the next"},
      {"Made", setup.created},
  };
}

Terms WayTerms(const Comparison& comparison) {
  Terms terms;
  const auto ways =
      ParseWays(absl::StrJoin(comparison.values[AxisIndex(kWayAxis)], ","));
  if (!ways.ok()) return terms;
  for (const WaySpec& way : *ways) {
    terms.push_back({way.name, Explain(way)});
  }
  return terms;
}

Cells FlagCells(const StudySetup& setup) {
  Cells cells = {{"flag", "value"}};
  for (const auto& [flag, value] : setup.flags) {
    const char* const last =
        IsOfScript(setup) ? "-- (the script)" : "-- (to every worker)";
    cells.push_back({flag == "--" ? last : flag, value});
  }
  return cells;
}

// Empty where the runs do not know.
std::string StalenessHtml(const nlohmann::json& charts) {
  if (charts["staleness"].empty()) return "";
  return "<h2>Staleness</h2>\n<div class=\"charts\" id=\"staleness\"></div>\n"
         "<p class=\"faint\">How large a part of each worker's gradients "
         "missed "
         "so many updates by others, over all servers and seeds.</p>";
}

std::string StepTimesHtml(const Comparison& comparison) {
  const Cells cells = StepTimeCells(comparison);
  if (cells.size() < 2) return "";
  return absl::StrCat(
      "<h2>Where a step's time went</h2>\n<div class=\"charts\" "
      "id=\"step-times\"></div>\n<p class=\"faint\">Of a worker's average "
      "step: "
      "computing, the exchange as far as nothing hid it, with the waiting for "
      "slower workers in it, and injected slowness. "
      "Means "
      "over workers and seeds.</p>\n<details><summary>By worker</summary>\n"
      "<div class=\"scroll\">",
      HtmlTable(cells), "</div></details>");
}

bool IsNotSimulated(const SyncPolicy& policy) { return !policy.barrier; }

std::string PredictionHtml(const Comparison& comparison) {
  const Cells cells = PredictionCells(comparison);
  if (cells.size() < 2) return "";
  return absl::StrCat(
      "<h2>Predicted and measured</h2>\n<div class=\"scroll\">",
      HtmlTable(cells),
      "</div>\n<p class=\"faint\">What <code>psring predict</code> makes of a "
      "synchronous step: it is told how long each worker's steps computed and "
      "the rate of the links, and works out the exchange and who waits. It "
      "does not know that processes of one machine take each other's cores, "
      "nor of the encryption of messages between hosts, which "
      "<code>--insecure</code> leaves out. "
      "Means over seeds; ",
      NamesOf(IsNotSimulated),
      ", compression and single slow links are "
      "not simulated.</p>");
}

}  // namespace

std::string RenderJson(const StudySetup& setup, const Comparison& comparison) {
  return DumpJson(ToJson(setup, comparison), 1) + "\n";
}

std::string RenderHtml(const StudySetup& setup, const Comparison& comparison) {
  const nlohmann::json charts = ChartsJson(comparison);
  // In one pass: what has been put in is not searched again.
  return absl::StrReplaceAll(
      kReportTemplate,
      {
          {"{{HEAD}}", ReportHead("psring compare")},
          {"{{QUESTIONS}}",
           EscapeHtml(absl::StrJoin(Questions(comparison), " "))},
          {"{{INTRODUCTION}}", EscapeHtml(Introduction(setup, comparison))},
          {"{{FAULTS}}",
           absl::StrCat(FaultsHtml(comparison), FailuresHtml(comparison))},
          {"{{HEADLINES}}", HeadlinesHtml(comparison)},
          {"{{FINDINGS}}", FindingsHtml(comparison)},
          {"{{SUMMARY}}", HtmlTable(SummaryCells(comparison))},
          {"{{SEEDS}}", EscapeHtml(SeedsText(comparison))},
          {"{{TIMES}}", EscapeHtml(TimesText(setup, comparison.goal))},
          {"{{TARGET}}", EscapeHtml(TargetText(setup, comparison))},
          {"{{RATES}}", EscapeHtml(RatesText(setup))},
          {"{{SHARED_MEMORY}}", EscapeHtml(SharedMemoryText(setup))},
          {"{{STALENESS}}", StalenessHtml(charts)},
          {"{{STEP_TIMES}}", StepTimesHtml(comparison)},
          {"{{PREDICTION}}", PredictionHtml(comparison)},
          {"{{TRAFFIC}}", HtmlTable(TrafficCells(comparison))},
          {"{{RUNS}}", HtmlTable(RunCells(comparison))},
          {"{{EPOCHS}}", HtmlTable(EpochCells(comparison))},
          {"{{WAYS}}", HtmlTerms(WayTerms(comparison))},
          {"{{SETUP}}", HtmlTerms(SetupTerms(setup, comparison))},
          {"{{COMMAND}}", EscapeHtml(setup.command)},
          {"{{FLAGS}}", HtmlTable(FlagCells(setup))},
          {"{{FOOT}}", ReportFoot(charts, kReportCharts)},
      });
}

}  // namespace psring
