// A study as a report, for people and for programs.
#ifndef PSRING_CLI_REPORT_H_
#define PSRING_CLI_REPORT_H_

#include <string>

#include "cli/comparison.h"
#include "cli/study_setup.h"

namespace psring {

// Everything that is known, as JSON; see report_json.h.
std::string RenderJson(const StudySetup& setup, const Comparison& comparison);

// One file that needs no other and no network. All that comes from the user or
// from files is escaped.
std::string RenderHtml(const StudySetup& setup, const Comparison& comparison);

}  // namespace psring

#endif  // PSRING_CLI_REPORT_H_
