// What `psring timeline` says, for the terminal.
#ifndef PSRING_LAB_PAGE_TIMELINE_TEXT_H_
#define PSRING_LAB_PAGE_TIMELINE_TEXT_H_

#include <string>
#include <vector>

#include "common/trace/step_times.h"
#include "common/trace/trace_reader.h"

namespace psring {

// Tables of where the steps' time went and who was waited for.
std::string ExplanationText(const Explanation& explanation);

// What makes the timelines incomplete, and how well their clocks agree.
std::string DoubtsText(const std::vector<TraceInfo>& processes);

}  // namespace psring

#endif  // PSRING_LAB_PAGE_TIMELINE_TEXT_H_
