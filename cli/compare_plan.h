// What `psring compare` was asked for.
#ifndef PSRING_CLI_COMPARE_PLAN_H_
#define PSRING_CLI_COMPARE_PLAN_H_

#include <variant>

#include "lab/host/arguments.h"
#include "lab/study/study.h"

namespace psring {

// A plan, or the exit code to end with at once: after --help, and after a line
// on stderr that says which flag is wrong and how.
std::variant<StudyPlan, int> PlanCompare(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_COMPARE_PLAN_H_
