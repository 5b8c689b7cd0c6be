// A comparison as JSON: the report's machine-readable form, and what its charts
// are drawn from.
#ifndef PSRING_CLI_REPORT_JSON_H_
#define PSRING_CLI_REPORT_JSON_H_

#include <nlohmann/json.hpp>

#include "cli/report.h"

namespace psring {

// A number that is not finite becomes null.
nlohmann::json ToJson(const ReportSetup& setup, const Comparison& comparison);

}  // namespace psring

#endif  // PSRING_CLI_REPORT_JSON_H_
