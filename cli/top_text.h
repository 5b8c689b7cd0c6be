// A running job as text.
#ifndef PSRING_CLI_TOP_TEXT_H_
#define PSRING_CLI_TOP_TEXT_H_

#include <string>

#include "common/page/job_state.h"

namespace psring {

// Some lines on the job, a table of its processes, what happened lately.
std::string TopText(const JobState& state);

}  // namespace psring

#endif  // PSRING_CLI_TOP_TEXT_H_
