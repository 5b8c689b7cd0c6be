// The report of `psring compare`: a text for the terminal, files for people and
// programs.
#ifndef PSRING_LAB_STUDY_STUDY_REPORT_H_
#define PSRING_LAB_STUDY_STUDY_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "lab/study/comparison.h"
#include "lab/study/study_setup.h"

namespace psring {

// The table, and what follows from it.
std::string StudyText(const Comparison& comparison);

// Writes report.json and report.html to the folder `directory`.
absl::Status WriteStudyReport(const StudySetup& setup,
                              const Comparison& comparison,
                              const std::string& directory);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_STUDY_REPORT_H_
