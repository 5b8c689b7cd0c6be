// A running job in a line or two, for people who wait for it.
#ifndef PSRING_LAB_PAGE_JOB_LINES_H_
#define PSRING_LAB_PAGE_JOB_LINES_H_

#include <string>
#include <vector>

#include "common/page/job_state.h"

namespace psring {

// "ps-ssp:3, 4 workers, 2 servers".
std::string JobTitle(const JobState& state);

// What is drawn anew on a terminal:
//   [######......] step 1,200 of 2,400  loss 0.1234  3:20 left  8,000 samples/s
//   ps-bsp, 4 workers, 2 servers; the slowest: worker 3 (host b, pid 4711)
std::vector<std::string> JobBlock(const JobState& state);

// "the slowest: worker 3 (host b, pid 4711)"; none where nobody is.
std::vector<std::string> SlowestLine(const JobState& state);

// JobBlock in one line, for a file; none where there is nothing to tell yet.
std::vector<std::string> JobLine(const JobState& state);

}  // namespace psring

#endif  // PSRING_LAB_PAGE_JOB_LINES_H_
