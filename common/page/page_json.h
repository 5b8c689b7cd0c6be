// The job as JSON, for the page's script and for tools of one's own.
#ifndef PSRING_COMMON_PAGE_PAGE_JSON_H_
#define PSRING_COMMON_PAGE_PAGE_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/page/job_state.h"

namespace psring {

// A job that was shown before, of a page that shows several.
struct EarlierJob {
  struct Value {
    double seconds = 0;
    double value = 0;
  };
  std::string name;
  std::vector<Value> losses = {}, accuracies = {}, test_losses = {};
};

// The jobs of a page that shows several, one after the other.
struct JobSeries {
  int64_t jobs = 0;   // that have begun; 0: there is no series
  std::string title;  // of the job that is shown
  std::vector<EarlierJob> earlier;
};

// What a reader has of the curves.
struct Seen {
  int64_t jobs = 0;      // see JobSeries::jobs; other curves before it
  size_t earlier = 0;    // jobs
  int64_t thinned = -1;  // see JobState::thinned; other points before it
  size_t points = 0;
  size_t evaluations = 0;
};

// One object: what docs/monitoring.md lists. Of the curves, what comes after
// `seen`, which then holds it; of everything else, all.
std::string ToJson(const JobState& state, const JobSeries& series, Seen& seen);

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_PAGE_JSON_H_
