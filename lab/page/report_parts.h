// What all reports are put together from.
#ifndef PSRING_LAB_PAGE_REPORT_PARTS_H_
#define PSRING_LAB_PAGE_REPORT_PARTS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/strings/string_view.h"
#include "lab/host/machine.h"

namespace psring {

// ASCII only; bytes that are not UTF-8 become U+FFFD.
std::string DumpJson(const nlohmann::json& value, int indent);

nlohmann::json MachineJson(const Machine& machine);

// For people: "AMD EPYC, 2 cores, 8.0 GiB memory, Linux 6.1.0, x86_64".
std::string MachineText(const Machine& machine);

// The beginning of every report's page, up to its body.
std::string ReportHead(absl::string_view title);

// The end of every report's page: `data`, Chart.js, what charts share, and
// `charts`, the script that draws them from `data`.
std::string ReportFoot(const nlohmann::json& data, absl::string_view charts);

}  // namespace psring

#endif  // PSRING_LAB_PAGE_REPORT_PARTS_H_
