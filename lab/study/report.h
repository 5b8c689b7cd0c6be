// A study as a report, for people and for programs.
#ifndef PSRING_LAB_STUDY_REPORT_H_
#define PSRING_LAB_STUDY_REPORT_H_

#include <string>

#include "lab/study/comparison.h"
#include "lab/study/study_setup.h"

namespace psring {

// Everything that is known, as JSON; see report_json.h.
std::string RenderJson(const StudySetup& setup, const Comparison& comparison);

// One file that needs no other and no network. All that comes from the user or
// from files is escaped.
std::string RenderHtml(const StudySetup& setup, const Comparison& comparison);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_REPORT_H_
