// What `psring compare` was asked for.
#ifndef PSRING_CLI_COMPARE_PLAN_H_
#define PSRING_CLI_COMPARE_PLAN_H_

#include <string>
#include <variant>
#include <vector>

#include "cli/flags.h"
#include "lab/host/job.h"
#include "lab/study/study_axes.h"
#include "lab/study/study_setup.h"

namespace psring {

struct ComparePlan {
  AxisValues values;
  std::vector<Point> runs;     // in the order of running
  double target_accuracy = 0;  // 0: what the ways reach
  std::string out;             // empty: no study is kept
  Job job;                     // what all runs share
  StudySetup setup;
};

// A plan, or the exit code to end with at once: after --help, and after a line
// on stderr that says which flag is wrong and how.
std::variant<ComparePlan, int> PlanCompare(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_COMPARE_PLAN_H_
