// The report of `psring predict`: a text for the terminal, files for people and
// programs.
#ifndef PSRING_LAB_PREDICT_PREDICT_REPORT_H_
#define PSRING_LAB_PREDICT_PREDICT_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "lab/predict/predict_study.h"

namespace psring {

inline constexpr char kPredictHtml[] = "predict.html";

// Where the numbers come from, the table, and what follows from it.
std::string PredictText(const PredictStudy& study);

// Writes predict.html to the folder `directory`.
absl::Status WritePredictReport(const PredictStudy& study,
                                const std::string& directory);

// As CheckReportPath, for WritePredictJson.
absl::Status CheckPredictJson(const std::string& path);

// Writes every prediction to the file `path`.
absl::Status WritePredictJson(const PredictStudy& study,
                              const std::string& path);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_PREDICT_REPORT_H_
