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
// `step_seconds`: a mean step that was explained by them, for which they may
// not agree well enough; 0: none was.
std::string DoubtsText(const std::vector<TraceInfo>& processes,
                       double step_seconds = 0);

}  // namespace psring

#endif  // PSRING_LAB_PAGE_TIMELINE_TEXT_H_
