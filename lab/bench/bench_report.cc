#include "lab/bench/bench_report.h"

#include "absl/strings/str_cat.h"
#include "lab/bench/bench_cells.h"
#include "lab/bench/bench_html.h"
#include "lab/bench/bench_json.h"
#include "lab/page/report_files.h"
#include "lab/page/text_table.h"

namespace psring {

std::string BenchText(const BenchResults& results) {
  std::string text;
  for (const auto& cells :
       {PointCells(results), LinkCells(results), TrainCells(results)}) {
    if (cells.size() > 1) absl::StrAppend(&text, "\n", TextTable(cells));
  }
  absl::StrAppend(&text, "\n");
  for (const auto& notes : {Warnings(results), Notes(results)}) {
    for (const std::string& note : notes) {
      absl::StrAppend(&text, "* ", note, "\n");
    }
  }
  return text;
}

absl::Status WriteBenchReport(const BenchResults& results,
                              const std::string& directory) {
  absl::Status s =
      WriteReportFile(directory, kBenchJson, RenderBenchJson(results));
  if (!s.ok()) return s;
  return WriteReportFile(directory, kBenchHtml, RenderBenchHtml(results));
}

}  // namespace psring
