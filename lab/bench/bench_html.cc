#include "lab/bench/bench_html.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "lab/bench/bench_cells.h"
#include "lab/bench/bench_charts.h"
#include "lab/bench/bench_json.h"
#include "lab/bench/bench_template.h"
#include "lab/host/units.h"
#include "lab/page/html.h"
#include "lab/page/report_parts.h"

namespace psring {
namespace {

// A table under a heading; nothing where it has only its header.
std::string Section(const std::string& heading,
                    const std::vector<std::vector<std::string>>& cells) {
  if (cells.size() < 2) return "";
  return absl::StrCat("<h2>", EscapeHtml(heading),
                      "</h2>\n<div class=\"scroll\">\n", HtmlTable(cells),
                      "</div>\n");
}

std::string HostsText(const BenchResults& results) {
  if (results.hosts == 0) return "this one";
  return absl::StrCat(results.hosts, " namespaces with links of ",
                      FormatLinkRate(results.link_bits_per_s));
}

Terms SetupTerms(const BenchResults& results) {
  return {
      {"Machine", MachineText(results.machine)},
      {"Hosts", HostsText(results)},
      {"Software", absl::StrCat("psring ", results.commit)},
      {"Made", results.created},
  };
}

std::string WarningsHtml(const BenchResults& results) {
  const std::vector<std::string> warnings = Warnings(results);
  if (warnings.empty()) return "";
  return HtmlWarning(EscapeHtml(absl::StrJoin(warnings, " ")));
}

}  // namespace

std::string RenderBenchHtml(const BenchResults& results) {
  nlohmann::json data = ToJson(results)["points"];
  for (auto& point : data) {  // the charts need no raw times
    point.erase("copy_seconds");
    for (auto& measurement : point["measurements"]) {
      measurement.erase("seconds");
    }
  }
  // In one pass: what has been put in is not searched again.
  return absl::StrReplaceAll(
      kBenchTemplate,
      {
          {"{{HEAD}}", ReportHead("psring bench")},
          {"{{COMMAND}}", EscapeHtml(results.command)},
          {"{{POINTS}}", Section("Time, bandwidth and distance from the limit",
                                 PointCells(results))},
          {"{{LINKS}}", Section("Links", LinkCells(results))},
          {"{{TRAIN}}", Section("Training", TrainCells(results))},
          {"{{WARNINGS}}", WarningsHtml(results)},
          {"{{NOTES}}", HtmlList(Notes(results))},
          {"{{SETUP}}", HtmlTerms(SetupTerms(results))},
          {"{{FOOT}}", ReportFoot(data, kBenchCharts)},
      });
}

}  // namespace psring
