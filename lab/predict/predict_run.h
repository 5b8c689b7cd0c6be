// What `psring predict` works out: the steps of one model on many hosts.
#ifndef PSRING_LAB_PREDICT_PREDICT_RUN_H_
#define PSRING_LAB_PREDICT_PREDICT_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/layout.h"
#include "common/net/cancellation.h"
#include "lab/predict/predict_source.h"
#include "lab/predict/predict_study.h"
#include "lab/predict/scenario.h"

namespace psring {

// What is given here comes before the file, the file before a measurement.
struct PredictOptions {
  std::vector<int> hosts;    // numbers of hosts with a worker
  std::vector<int> servers;  // on hosts of their own; empty: 1, 2, 4, ...
  Hardware hardware;         // without the update
  bool link_given = false;   // false: the file's link comes before hardware's
  std::optional<double> update_bytes_per_s;  // nothing: measured here
  std::string from;               // the report of an earlier run; empty: none
  int64_t parameters = 0;         // of the model; 0: the file's, or measured
  std::vector<double> compute_s;  // empty: the file's, or measured
  WorkerMeasurement measurement;  // how to measure
  double bucket_bytes = kDefaultBucketBytes;
  double forward_share = 1.0 / 3;
  Effort effort;
};

// INVALID_ARGUMENT: compute times and parameters, of which the flags and the
// file (`source`) give one, would be those of different models, or flags say
// what to measure where the file leaves nothing to.
absl::Status CheckGiven(const PredictOptions& options,
                        const PredictSource& source);

// Blocks, uses all cores, and says on stderr when it measures. The study lacks
// its command, date and commit. An error names the file or the process that is
// to blame.
absl::StatusOr<PredictStudy> RunPrediction(const PredictOptions& options,
                                           const Cancellation& cancellation);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_PREDICT_RUN_H_
