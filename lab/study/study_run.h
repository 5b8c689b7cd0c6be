// One run of a study, as processes of this host: trains and collects what came
// out.
#ifndef PSRING_LAB_STUDY_STUDY_RUN_H_
#define PSRING_LAB_STUDY_STUDY_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/net/cancellation.h"
#include "common/page/job_page.h"
#include "lab/host/job.h"
#include "lab/study/run_result.h"
#include "lab/study/study_axes.h"

namespace psring {

// The job of `point`: `job` with what the point's values say.
Job JobOf(const Point& point, Job job);

// What a run that failed came to.
struct RunFailure {
  int exit_code = 1;  // what this program should end with
  // Another run need not fail, too: a process failed of a job that had formed,
  // so that its flags were right, or all ended well and their results cannot be
  // collected. False of a script that tells of no results: none of its runs do.
  bool others_may_succeed = false;
};

// `job` holds everything but what the point says and where things go: to
// `directory`, which exists. Shows progress on stdout and, unless it is null,
// on `page` what the job's processes tell; of jobs on hosts of their own, which
// are not reached from here, nothing. Blocks until every
// process has ended. After an error `failure` says more.
absl::StatusOr<RunResult> RunOnce(const Point& point, const Job& job,
                                  const std::string& directory,
                                  const Cancellation& cancellation,
                                  JobPage* page, RunFailure* failure);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_STUDY_RUN_H_
