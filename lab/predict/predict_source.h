// What a prediction starts from, out of files and from this host.
#ifndef PSRING_LAB_PREDICT_PREDICT_SOURCE_H_
#define PSRING_LAB_PREDICT_PREDICT_SOURCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/cancellation.h"
#include "common/trace/metrics_reader.h"

namespace psring {

// What somebody has measured; empty or nothing: not that.
struct PredictSource {
  std::string model;
  int64_t parameters = 0;
  std::string run;  // whose compute_s these are: "ring, 2 workers"
  std::vector<double> compute_s;  // of steps
  bool with_exchange = false;     // of compute_s
  // While they were measured: see lab/host/other_load.h.
  std::optional<double> other_cores;
  std::optional<double> link_bits_per_s;
};

// report.json of `psring compare`: the model, and how long its fastest run's
// workers computed, of those of ways without flags of their own, such as
// another batch size, if there are any; where it does not tell, the times of
// that run's steps. bench.json of `psring bench --hosts`: the slowest link.
// NOT_FOUND, INVALID_ARGUMENT for a folder, or DATA_LOSS, which names the file
// and the field that is missing or wrong.
absl::StatusOr<PredictSource> ReadSource(const std::string& path);

// Measures a single worker on this host, for `budget` of training and at least
// four reports.
struct WorkerMeasurement {
  std::string worker_binary;
  std::string model = "lenet";
  bool model_given = false;  // by the user
  // A flag of the user's that says what or how to measure; empty: none.
  std::string flag_given = {};
  std::string data = "digits:train=8192,test=64";
  int batch_size = 64;
  int threads = 0;  // 0: all cores
  absl::Duration budget = absl::Seconds(5);
};
absl::StatusOr<PredictSource> MeasureWorker(const WorkerMeasurement& wanted,
                                            const Cancellation& cancellation);

// Seconds a step between any two reports but the first, which warms up. A
// report comes every 200 ms: faster steps appear as their mean.
std::vector<double> StepSeconds(const std::vector<StepSample>& steps);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_PREDICT_SOURCE_H_
