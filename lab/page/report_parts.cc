#include "lab/page/report_parts.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/page/chart_js.h"
#include "common/page/chart_tools.h"
#include "common/page/report_style.h"
#include "lab/page/format.h"
#include "lab/page/html.h"
#include "lab/page/report_foot.h"
#include "lab/page/report_head.h"

namespace psring {

using nlohmann::json;

namespace {

// JSON for inside a script element: no character that HTML could take for
// markup.
std::string EscapeScript(absl::string_view json) {
  return absl::StrReplaceAll(
      json, {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

}  // namespace

std::string DumpJson(const json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/true,
                    json::error_handler_t::replace);
}

json MachineJson(const Machine& machine) {
  return {
      {"cores", machine.cores},
      {"cpu", machine.cpu},
      {"memory_bytes", machine.memory_bytes},
      {"system", machine.system},
  };
}

std::string MachineText(const Machine& machine) {
  return absl::StrCat(machine.cpu, ", ", machine.cores, " cores, ",
                      FormatBytes(static_cast<double>(machine.memory_bytes)),
                      " memory, ", machine.system);
}

std::string ReportHead(absl::string_view title) {
  return absl::StrReplaceAll(kReportHead, {{"{{TITLE}}", EscapeHtml(title)},
                                           {"{{STYLE}}", kReportStyle}});
}

std::string ReportFoot(const json& data, absl::string_view charts) {
  // In one pass: what has been put in is not searched again.
  return absl::StrReplaceAll(kReportFoot,
                             {
                                 {"{{DATA}}", EscapeScript(DumpJson(data, -1))},
                                 {"{{CHART_JS}}", kChartJs},
                                 {"{{CHART_TOOLS}}", kChartTools},
                                 {"{{CHARTS}}", charts},
                             });
}

}  // namespace psring
