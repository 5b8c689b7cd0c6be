// What a process's metrics say, as TensorBoard reads it: a file of records
// (TFRecord), each an Event of protos/tensorboard.proto.
#ifndef PSRING_COMMON_TRACE_EVENT_FILE_H_
#define PSRING_COMMON_TRACE_EVENT_FILE_H_

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "protos/tensorboard.pb.h"

namespace psring {

// Lines of a table: a name and its value.
using TextTableRows = std::vector<std::pair<std::string, std::string>>;

// A disk that fails is a warning, after which nothing more is written.
class EventFile {
 public:
  // Writes nothing.
  EventFile() = default;
  // Writes DIRECTORY/RUN-DATE/events.out.tfevents.*, which TensorBoard shows as
  // a run of that name. An empty directory: writes nothing.
  EventFile(const std::string& directory, const std::string& run);

  // A page of text: a table.
  void WriteTable(const std::string& tag, const TextTableRows& rows);

  // A line of the metrics (metrics_file.h): its numbers are scalars, each under
  // "EVENT/NAME", and "staleness_histogram" is a histogram over all workers.
  // Those that "not_finite" names are NaN.
  void WriteLine(const nlohmann::json& line);

 private:
  void AddValues(const std::string& prefix, const nlohmann::json& values,
                 tensorboard::Summary* summary);
  void WriteEvent(tensorboard::Event event);
  void Append(const std::string& record);
  void Fail(const std::string& why);

  std::string path_;
  std::ofstream file_;  // closed: nothing is written
};

// Of Castagnoli's polynomial, as TFRecord wants it; masked.
uint32_t MaskedCrc32c(absl::string_view bytes);

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_EVENT_FILE_H_
