#include "common/page/page_html.h"

#include "absl/strings/str_replace.h"
#include "common/page/chart_js.h"
#include "common/page/chart_tools.h"
#include "common/page/page_script.h"
#include "common/page/page_style.h"
#include "common/page/page_template.h"
#include "common/page/report_style.h"

namespace psring {

std::string PageHtml() {
  // In one pass: what has been put in is not searched again.
  return absl::StrReplaceAll(kPageTemplate, {{"{{STYLE}}", kReportStyle},
                                             {"{{PAGE_STYLE}}", kPageStyle},
                                             {"{{CHART_JS}}", kChartJs},
                                             {"{{CHART_TOOLS}}", kChartTools},
                                             {"{{SCRIPT}}", kPageScript}});
}

}  // namespace psring
