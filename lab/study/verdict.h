// What follows from a comparison, in sentences for people. A difference is
// claimed only where the seeds tell it from chance (Tied in contrast.h).
#ifndef PSRING_LAB_STUDY_VERDICT_H_
#define PSRING_LAB_STUDY_VERDICT_H_

#include <string>
#include <vector>

#include "lab/study/comparison.h"

namespace psring {

// The questions of the axes that vary.
std::vector<std::string> Questions(const Comparison& comparison);

// Who reaches the target first, for each set of circumstances and each axis
// that varies: the answers to the questions.
std::vector<std::string> Headlines(const Comparison& comparison);

// So many are read; more are better left to a table.
inline constexpr size_t kMaxFindings = 8;

// Why, and what else is to be known.
std::vector<std::string> Findings(const Comparison& comparison);

// Both.
std::vector<std::string> Verdicts(const Comparison& comparison);

// The faults of speed that were injected on purpose, as flags; empty: none.
std::vector<std::string> Faults(const Comparison& comparison);

// The runs that failed, and why; empty: none.
std::vector<std::string> Failures(const Comparison& comparison);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_VERDICT_H_
