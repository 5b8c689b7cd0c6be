// Reads the timelines of a job's processes (common/trace/timeline.h).
#ifndef PSRING_COMMON_TRACE_TRACE_READER_H_
#define PSRING_COMMON_TRACE_TRACE_READER_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/trace/clock_readings.h"

namespace psring {

// What a process's timeline says of it.
struct TraceInfo {
  std::string path;
  std::string role;  // "worker" or "ps"
  int rank = 0;
  std::string job;
  int workers = 0;
  int servers = 0;
  std::string sync;  // "bsp", "ssp" or "async"
  int64_t staleness = 0;
  int backup_workers = 0;
  int64_t origin_ns = 0;            // by its host's monotonic clock
  int64_t date_ns = 0;              // the same moment as a date
  std::vector<ClockReading> clock;  // BestReadings; empty: none is known
  int64_t guessed_ahead_ns = 0;     // from dates, for that case
  std::vector<std::string> notes;   // events were lost, the file is full

  // An event's time by the coordinator's clock.
  int64_t CommonNs(double ts) const;
};

// Reads `directory`/ps-*.trace.json and worker-*.trace.json, servers first, and
// hands every event, with its process's place in the result, to `on_event`:
// memory is the caller's to use. Errors name the file that is damaged, missing
// or of another job.
absl::StatusOr<std::vector<TraceInfo>> ReadTraces(
    const std::string& directory,
    absl::FunctionRef<void(size_t process, const nlohmann::json& event)>
        on_event);

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_TRACE_READER_H_
