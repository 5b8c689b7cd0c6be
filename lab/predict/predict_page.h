// A prediction as JSON and as a page.
#ifndef PSRING_LAB_PREDICT_PREDICT_PAGE_H_
#define PSRING_LAB_PREDICT_PREDICT_PAGE_H_

#include <string>

#include "lab/predict/predict_study.h"

namespace psring {

// Every prediction, as JSON.
std::string RenderPredictJson(const PredictStudy& study);

// One file that needs no other and no network. All that comes from the user or
// from files is escaped.
std::string RenderPredictHtml(const PredictStudy& study);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_PREDICT_PAGE_H_
