#include "cli/report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "cli/chart_js.h"
#include "cli/chart_tools.h"
#include "cli/html.h"
#include "cli/report_charts.h"
#include "cli/report_json.h"
#include "cli/report_parts.h"
#include "cli/report_style.h"
#include "cli/report_template.h"
#include "cli/summary.h"

namespace psring {
namespace {

// "1 worker", "2 workers".
std::string Number(int number, absl::string_view noun) {
  return absl::StrCat(number, " ", noun, number == 1 ? "" : "s");
}

Terms SetupTerms(const ReportSetup& setup, const Comparison& comparison) {
  const int64_t parameters =
      comparison.modes.empty() ? 0 : comparison.modes[0].num_parameters;
  return {
      {"Model", absl::StrCat(setup.model, ", ",
                             FormatCount(static_cast<double>(parameters)),
                             " parameters")},
      {"Data", setup.data},
      {"Processes",
       absl::StrCat(Number(setup.workers, "worker"), " of ",
                    Number(setup.threads_per_worker, "thread"), "; ",
                    Number(setup.servers, "server"), " in the ps modes")},
      {"Training",
       absl::StrCat(Number(setup.epochs, "epoch"), ", batches of ",
                    setup.batch_size, " a worker, seed ", setup.seed)},
      {"Optimizer", absl::StrCat(setup.optimizer, ", learning rate ", setup.lr,
                                 ", momentum ", setup.momentum)},
      {"Machine", MachineText(setup.machine)},
      {"Software", absl::StrCat("psring ", setup.commit, ", libtorch ",
                                setup.libtorch, ", ZeroMQ ", setup.zeromq)},
      {"Made", setup.created},
  };
}

Terms ModeTerms(const Comparison& comparison) {
  Terms terms;
  for (const ModeResult& mode : comparison.modes) {
    terms.push_back({mode.spec.name, Explain(mode.spec)});
  }
  return terms;
}

// The numbers behind the charts.
Cells EpochCells(const Comparison& comparison) {
  Cells cells = {{"mode", "epoch", "step", "seconds", "train loss", "test loss",
                  "test accuracy"}};
  for (const ModeResult& mode : comparison.modes) {
    for (const EpochSample& epoch : mode.epochs) {
      cells.push_back({mode.spec.name, absl::StrCat(epoch.epoch),
                       absl::StrCat(epoch.step),
                       absl::StrFormat("%.2f", epoch.seconds),
                       absl::StrFormat("%.4f", epoch.train_loss),
                       absl::StrFormat("%.4f", epoch.test_loss),
                       FormatPercent(epoch.test_accuracy)});
    }
  }
  return cells;
}

}  // namespace

std::string RenderJson(const ReportSetup& setup, const Comparison& comparison) {
  return DumpJson(ToJson(setup, comparison), 1) + "\n";
}

std::string RenderHtml(const ReportSetup& setup, const Comparison& comparison) {
  const std::string data = DumpJson(ToJson(setup, comparison), -1);
  // In one pass: what has been put in is not searched again.
  return absl::StrReplaceAll(
      kReportTemplate,
      {
          {"{{COMMAND}}", EscapeHtml(setup.command)},
          {"{{VERDICTS}}", HtmlList(Verdicts(comparison))},
          {"{{SUMMARY}}", HtmlTable(SummaryCells(comparison))},
          {"{{MODES}}", HtmlTerms(ModeTerms(comparison))},
          {"{{EPOCHS}}", HtmlTable(EpochCells(comparison))},
          {"{{SETUP}}", HtmlTerms(SetupTerms(setup, comparison))},
          {"{{DATA}}", EscapeScript(data)},
          {"{{STYLE}}", kReportStyle},
          {"{{CHART_JS}}", kChartJs},
          {"{{CHART_TOOLS}}", kChartTools},
          {"{{CHARTS}}", kReportCharts},
      });
}

}  // namespace psring
