// Reads what the timelines of a job say of its workers' steps.
#ifndef PSRING_COMMON_TRACE_STEP_READER_H_
#define PSRING_COMMON_TRACE_STEP_READER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/trace/step_times.h"
#include "common/trace/trace_reader.h"

namespace psring {

struct JobSteps {
  std::vector<TraceInfo> processes;  // servers first
  std::vector<WorkerSteps> workers;  // by rank
};

// From the files that ReadTraces reads, with its errors.
absl::StatusOr<JobSteps> ReadSteps(const std::string& directory);

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_STEP_READER_H_
