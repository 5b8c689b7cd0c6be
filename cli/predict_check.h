// psring predict --check: predictions against measurements on hosts of
// namespaces.
#ifndef PSRING_CLI_PREDICT_CHECK_H_
#define PSRING_CLI_PREDICT_CHECK_H_

#include "absl/status/status.h"
#include "cli/predict_plan.h"
#include "common/net/cancellation.h"

namespace psring {

// At each rate of the links: measures a stream, then the ring and servers on
// hosts of their own, at every size and number of hosts; calibrates on the runs
// of 2 hosts alone; prints predicted against measured, and writes
// predict-check.json. An error names who failed and at what.
absl::Status CheckPredictions(const PredictFlags& flags,
                              const PredictPlan& plan,
                              const Cancellation& cancellation);

}  // namespace psring

#endif  // PSRING_CLI_PREDICT_CHECK_H_
