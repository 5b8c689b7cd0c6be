// A study from its first run to its last.
#ifndef PSRING_LAB_STUDY_STUDY_H_
#define PSRING_LAB_STUDY_STUDY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/cancellation.h"
#include "common/page/job_page.h"
#include "lab/host/job.h"
#include "lab/host/process_groups.h"
#include "lab/study/goal.h"
#include "lab/study/run_result.h"
#include "lab/study/study_axes.h"
#include "lab/study/study_setup.h"

namespace psring {

// What `psring compare` was asked for.
struct StudyPlan {
  AxisValues values;
  std::vector<Point> runs;  // in the order of running
  Aim aim;                  // what times are measured to
  std::string out;          // empty: no study is kept
  Job job;                  // what all runs share
  StudySetup setup;
  // Where the runs are shown, and the file of the page's token; empty: nowhere,
  // no file.
  std::string page = {};
  std::string page_token_file = {};
};

struct StudyOutcome {
  std::vector<RunResult> finished;  // in the order of running; at least one
  std::vector<FailedRun> failed;    // the others, in the same order
  // Why it ended before all runs were made; OK: it did not.
  absl::Status ended;
  // Of the first of `finished` that the folder did not take.
  absl::Status not_kept;
};

// Makes the runs that the study's folder lacks, with progress on stdout and on
// `page`, which may be null. `groups`, which may be null and outlives it, has
// the groups of the processes. A run that fails after its job has formed, or
// whose results cannot be collected or kept, is told of on stderr, and the
// others go on; where the first one fails earlier, that ends the study, since
// they would fail as well. Blocks until every process has ended. An error, or,
// where a run has finished, the outcome's `ended`, names the run and says how
// many are kept; `exit_code` is then what this program should end with, unless
// it was interrupted.
absl::StatusOr<StudyOutcome> RunStudy(const StudyPlan& plan,
                                      const Cancellation& cancellation,
                                      JobPage* page, ProcessGroups* groups,
                                      int* exit_code);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_STUDY_H_
