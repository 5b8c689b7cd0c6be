// What one run of a study found out: one way, one seed, one set of processes.
#ifndef PSRING_LAB_STUDY_RUN_RESULT_H_
#define PSRING_LAB_STUDY_RUN_RESULT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/trace/metrics_reader.h"
#include "lab/study/study_axes.h"

namespace psring {

struct RunResult {
  Point point;
  int64_t num_parameters = 0;
  int64_t num_steps = 0;  // of each worker
  double seconds = 0;     // of training
  double images_per_second = 0;
  // A script that does not say how many images a step has: `images_per_second`
  // are steps.
  bool counts_steps = false;
  // After the last epoch; NaN: a script does not tell.
  double test_accuracy = 0;
  double test_loss = 0;
  // Whether the numbers that --metric found were percent, as those above 1 are;
  // nothing: none was looked for.
  std::optional<bool> printed_percent;
  // Those of the process of that role which sent or held most; 0: no such
  // process.
  double worker_bytes_per_step = 0;
  double server_bytes_per_step = 0;
  int64_t worker_peak_bytes = 0;
  int64_t server_peak_bytes = 0;
  int64_t worker_peak_gpu_bytes = 0;  // 0: not on a GPU, or it does not tell
  bool on_gpu = false;                // a script does not tell
  std::string data;                   // ProcessMetrics's; nor does it tell this
  // In updates by other workers that a gradient missed; a ring's is 0.
  double staleness_mean = 0;
  int64_t staleness_max = 0;
  StalenessHistogram staleness_histogram;  // over all servers; may be empty
  std::map<int, StepTime> step_times;      // by worker; may be empty
  std::optional<double> predicted_step_s;  // see run_predictor.h
  std::optional<uint32_t> weights_crc32;   // a script may not tell
  double wall_seconds = 0;  // from the first process's start to the last's end
  // That other programs took of this host on average, where they held the run
  // up; see lab/host/other_load.h. Nothing: not known.
  std::optional<double> other_cores;
  std::vector<StepSample> steps;    // of worker 0
  std::vector<EpochSample> epochs;  // of worker 0
};

// A run whose job had formed and then failed, so that other runs may not.
struct FailedRun {
  Point point;
  std::string why;
  int exit_code = 1;  // what this program should end with
};

// FAILED_PRECONDITION names the process whose metrics lack their end.
// INVALID_ARGUMENT: nothing tells of what is compared, as of a script that does
// not log it. OUT_OF_RANGE: its last evaluation told an accuracy or,
// without one, a loss that is no finite number.
absl::StatusOr<RunResult> Summarize(const Point& point,
                                    const std::vector<ProcessMetrics>& all);

// A script prints in one unit: where a run's numbers are percent, those of all
// are, also of one that never came above 1%.
void UseOneUnit(std::vector<RunResult>& runs);

// The slowest worker's time of training over worker 0's steps.
double StepSeconds(const RunResult& run);

// The form that report.json and a study's folder have; see report_json.h. A
// number that is not finite becomes null, and comes back as NaN.
nlohmann::json ToJson(const RunResult& run);
// DATA_LOSS says what is missing.
absl::StatusOr<RunResult> RunFromJson(const nlohmann::json& json);

// {"mode": "ring", "workers": "4", ...}.
nlohmann::json PointJson(const Point& point);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_RUN_RESULT_H_
