// How far a study is, in a line before each of its runs. Pure.
#ifndef PSRING_LAB_STUDY_STUDY_PROGRESS_H_
#define PSRING_LAB_STUDY_STUDY_PROGRESS_H_

#include <optional>
#include <string>
#include <vector>

#include "lab/study/run_result.h"
#include "lab/study/study_axes.h"

namespace psring {

size_t NumFinished(const std::vector<std::optional<RunResult>>& runs);

// "ps-ssp:3, 2 workers, 1 server, seed 1": every axis that is not "none".
std::string RunLabel(const Point& point);

// "run 3 of 12: ring, 2 workers, seed 1".
std::string RunTitle(const Point& point, size_t index, size_t num_runs);

// With the time left: "run 3 of 12: ring, ..., about 2:10 min left"; how long
// is what the finished runs took on average for each that is not, and left out
// before there is one.
std::string RunLine(const Point& point, size_t index,
                    const std::vector<std::optional<RunResult>>& runs);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_STUDY_PROGRESS_H_
