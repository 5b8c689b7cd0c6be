// What `psring compare` found out, as numbers: pure arithmetic on metrics.
#ifndef PSRING_CLI_COMPARISON_H_
#define PSRING_CLI_COMPARISON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/metrics_reader.h"
#include "cli/mode_spec.h"

namespace psring {

struct ModeResult {
  ModeSpec spec;
  int64_t num_parameters = 0;
  int64_t num_steps = 0;  // of each worker
  double seconds = 0;     // of training
  double images_per_second = 0;
  double test_accuracy = 0;  // after the last epoch
  double test_loss = 0;
  // Of the process of that role which sent or held most; 0: no such process.
  double worker_bytes_per_step = 0;
  double server_bytes_per_step = 0;
  int64_t worker_peak_bytes = 0;
  int64_t server_peak_bytes = 0;
  // In updates by other workers that a gradient missed; a ring's is 0.
  double staleness_mean = 0;
  int64_t staleness_max = 0;
  uint32_t weights_crc32 = 0;
  std::vector<StepSample> steps;    // of worker 0
  std::vector<EpochSample> epochs;  // of worker 0
};

// FAILED_PRECONDITION names the process whose metrics lack something.
absl::StatusOr<ModeResult> Summarize(const ModeSpec& spec,
                                     const std::vector<ProcessMetrics>& all);

struct Comparison {
  std::vector<ModeResult> modes;
  // The lowest of the modes' final accuracies, which all have reached.
  double target_accuracy = 0;
  // Whether ps-bsp and ring ended with the same bytes; nothing unless both ran.
  std::optional<bool> identical_weights;
};

// Fills in the target.
Comparison Compare(std::vector<ModeResult> modes);

// When the first evaluation at `target` or better was; nothing if none was.
std::optional<double> SecondsToAccuracy(const ModeResult& mode, double target);

// The mode of this name, or null.
const ModeResult* FindMode(const Comparison& comparison,
                           const std::string& name);

}  // namespace psring

#endif  // PSRING_CLI_COMPARISON_H_
