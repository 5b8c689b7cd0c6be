// All timelines of a job in one.
#ifndef PSRING_COMMON_TRACE_TRACE_MERGE_H_
#define PSRING_COMMON_TRACE_TRACE_MERGE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/trace/trace_reader.h"

namespace psring {

// Writes the events of all timelines in `directory` to `out`, in the order of
// their beginnings, by the coordinator's clock, counted from the first one.
absl::StatusOr<std::vector<TraceInfo>> MergeTraces(const std::string& directory,
                                                   const std::string& out);

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_TRACE_MERGE_H_
