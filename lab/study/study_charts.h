// What the report's charts are drawn from, and no more; report_charts.js draws
// it:
//   {"target": 0.948, "target_text": "94.80% accuracy", "by_loss": false,
//    "courses": [{"title", "lines": [{"label", "look", "seeds",
//                 "accuracy": BAND, "loss": BAND, "test_loss": BAND}]}],
//    "rates": [{"label", "mean", "min", "max"}],
//    "scaling": [{"axis", "lines": [{"label", "look", "points":
//                 [{"x", "rate": SPREAD, "seconds": SPREAD or null}]}]}],
//    "staleness": [{"label", "workers": [{"rank", "counts"}]}],
//    "step_times": [{"label", "compute", "exposed", "wait"}]}
// with SPREAD {"mean", "min", "max"} and BAND a list of
// {"step", "seconds", "mean", "min", "max"}. "look" counts colours, dashes and
// marks from 0: lines of a way look alike in all pictures.
#ifndef PSRING_LAB_STUDY_STUDY_CHARTS_H_
#define PSRING_LAB_STUDY_STUDY_CHARTS_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "lab/study/comparison.h"

namespace psring {

// Nothing: null.
nlohmann::json SpreadJson(const std::optional<Spread>& spread);

nlohmann::json ChartsJson(const Comparison& comparison);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_STUDY_CHARTS_H_
