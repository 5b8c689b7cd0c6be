// Reads the metrics that a process writes while it runs; see
// common/trace/metrics_file.h for the lines.
#ifndef PSRING_COMMON_TRACE_METRICS_READER_H_
#define PSRING_COMMON_TRACE_METRICS_READER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

// Seconds count the training from its first step on, without evaluations, or a
// script from when it had joined. A number that was not finite reads as NaN.
struct StepSample {
  int64_t step = 0;
  double seconds = 0;
  double loss = 0;
  double images_per_second = 0;
};

struct EpochSample {
  int64_t epoch = 0;  // from 1
  int64_t step = 0;
  double seconds = 0;
  double train_loss = 0;
  double test_loss = 0;
  double test_accuracy = 0;
  double images_per_second = 0;
};

// Of a worker's average step, in seconds.
struct StepTime {
  double compute = 0;
  double exposed = 0;  // communication that nothing hides
  double wait = 0;     // of an injected fault of speed
  // Compute and wait of all steps: ascending means of equally many each.
  std::vector<double> busy = {};
};

// Of each worker, by rank: how many of its gradients missed 0, 1, ... updates;
// the last count is of all that missed more.
using StalenessHistogram = std::map<int, std::vector<int64_t>>;

struct ProcessEnd {
  int64_t step = 0;
  double seconds = 0;
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  int64_t peak_memory_bytes = 0;
  double staleness_mean = 0;                    // servers only
  int64_t staleness_max = 0;                    // servers only
  StalenessHistogram staleness_histogram = {};  // servers only
  std::optional<StepTime> step_time = {};       // workers only
  std::optional<uint32_t> weights_crc32 = {};   // of a script's worker 0
  // What the model takes of its GPU, and libtorch at most; nothing without one,
  // or where libtorch does not tell.
  std::optional<int64_t> peak_gpu_memory_bytes = {};
  std::optional<int64_t> samples = {};  // that this worker trained on
};

struct ProcessMetrics {
  std::string role;  // "ps" or "worker"; empty until the first line
  int64_t rank = 0;
  double started_s = 0;  // wall clock's, since 1970; 0: not said
  int64_t num_parameters = 0;
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;
  int64_t global_batch = 0;
  bool on_gpu = false;
  std::string data;  // with its checksum, where it came from files
  std::vector<StepSample> steps;
  std::vector<EpochSample> epochs;
  // Of the last evaluation: which figures were told and are no finite numbers.
  bool infinite_loss = false;
  bool infinite_accuracy = false;
  // Of a script, how many steps had been made when, from the first one on; loss
  // and rate are NaN.
  std::vector<StepSample> progress;
  std::optional<ProcessEnd> end;
};

// Follows one file.
class MetricsReader {
 public:
  // The file may come later.
  explicit MetricsReader(std::string path) : path_(std::move(path)) {}

  // Takes in what the file has got since the last call; a line without its
  // newline waits for the next. DATA_LOSS names the file and the line.
  absl::Status Read();

  const ProcessMetrics& metrics() const { return metrics_; }

 private:
  absl::Status TakeLine(absl::string_view line);

  const std::string path_;
  int64_t offset_ = 0;
  int64_t line_number_ = 0;
  ProcessMetrics metrics_;
};

// Every process's, from the finished files of a job.
absl::StatusOr<std::vector<ProcessMetrics>> ReadAllMetrics(
    const std::string& directory);

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_METRICS_READER_H_
