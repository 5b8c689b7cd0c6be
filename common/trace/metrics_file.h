// A process's own record of its run: JSON lines, one object a line, appended
// and flushed, so that a reader can follow along. Its lines:
//   {"event":"start", "time", "role", "rank", "host", "pid", ...}
//   {"event":"step", "step", "seconds", "loss", "images_per_second",
//    "learning_rate", and of a mean step since the line before
//    "compute_seconds" and "exposed_seconds"}; of a script the first four,
//    what else psring.log() was given, and "not_finite" as below
//   {"event":"epoch", "epoch", "step", "seconds", "train_loss", "test_loss",
//    "test_accuracy", "images_per_second"}; of a script more than one for one
//    evaluation, each with a part of its figures, where it tells them so.
//    "not_finite" has the names of "loss", "train_loss", "test_loss" and
//    "test_accuracy" that are null because they are NaN or infinite; figures
//    under names of the script's own are null then without being named
//   {"event":"progress", "step", "seconds", "last_step_seconds"}, of a script:
//    how many steps it has made, and how long the last one took, with what came
//    after it. At the beginning of the first step, and then four times a second
//    (at first more often)
//   {"event":"model", "num_parameters"}, of a script
//   {"event":"end", "step", "seconds", "bytes_sent", "bytes_received",
//    "peak_memory_bytes", of workers "gradient_bytes_sent" (see
//    gradient_exchange.h), of the trainer's "samples", of its own, and
//    "step_seconds" (of a mean step: "compute"; "exposed", waiting for the
//    exchange; "wait", an injected fault's; and "busy", the distribution of
//    compute and wait over the steps: ascending means of near-equally many
//    steps each), and of servers "staleness_mean", "staleness_max",
//    "staleness_histogram" (by worker: gradients of pieces of staleness 0, 1,
//    ..., the last bin open-ended), "late_gradients" (by worker: gradients of
//    pieces that backup workers made superfluous), and of a script's worker 0
//    "weights_crc32" of its parameters}
#ifndef PSRING_COMMON_TRACE_METRICS_FILE_H_
#define PSRING_COMMON_TRACE_METRICS_FILE_H_

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/status/statusor.h"
#include "common/trace/event_file.h"
#include "nlohmann/json.hpp"
#include "protos/cluster.pb.h"

namespace psring {

class MetricsFile {
 public:
  // Writes DIRECTORY/worker-RANK.jsonl (or ps-RANK.jsonl), made anew (see
  // earlier_file.h), with a start line that carries `details` too. An empty
  // directory: writes nothing.
  // Worker 0's and servers' lines go to TensorBoard's folder too, unless that
  // is empty.
  static absl::StatusOr<MetricsFile> Create(
      const std::string& directory, const proto::Process& process,
      nlohmann::json details, const std::string& tensorboard = "");

  // Never fails; where the file cannot be written, says so once and ends it.
  void Write(const nlohmann::json& line);
  // For TensorBoard alone.
  void WriteTable(const std::string& tag, const TextTableRows& rows) {
    events_.WriteTable(tag, rows);
  }

 private:
  void OpenEvents(const std::string& tensorboard,
                  const nlohmann::json& details);
  // Whether the file has all of the line.
  bool Append(const nlohmann::json& line);

  std::string path_;
  std::ofstream file_;
  uintmax_t whole_lines_ = 0;  // bytes
  EventFile events_;
};

// The most memory that this process has held at once, in bytes. Shared memory
// counts where it belongs: `shared_bytes` of this process's own, and none of
// what it has mapped of others'.
int64_t PeakMemoryBytes(int64_t shared_bytes);

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_METRICS_FILE_H_
