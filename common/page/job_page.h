// A running job for people to look at, in the process that runs its
// coordinator: a page, its data, and metrics, by HTTP for whoever shows the
// page's token.
//
//   /         the page: one HTML file that loads nothing else
//   /events   server-sent events: the job as JSON, about once a second
//   /state    the same, once, with the whole curves
//   /metrics  for Prometheus
//   /view     a JobView, for psring top
//
// It neither slows nor ends the job: its threads and readers are bounded, and
// the coordinator only leaves with it what it knows.
#ifndef PSRING_COMMON_PAGE_JOB_PAGE_H_
#define PSRING_COMMON_PAGE_JOB_PAGE_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster/cluster_session.h"
#include "common/cluster/coordinator.h"
#include "common/mutex.h"
#include "common/page/job_state.h"
#include "common/page/page_json.h"
#include "common/page/web_server.h"
#include "protos/cluster.pb.h"

namespace psring {

class JobPage {
 public:
  // Listens on "HOST:PORT" (port 0: the system chooses) and writes the page's
  // address, with the token, to stderr. `token_file` empty: a new token. Errors
  // begin with the flag that they are about.
  static absl::StatusOr<std::unique_ptr<JobPage>> Start(
      const std::string& address, const std::string& token_file);

  // Tells readers how the job ended. Blocks for a second at most, or 5 while a
  // reader does not read.
  ~JobPage();

  // "http://127.0.0.1:41234/?token=...".
  const std::string& url() const { return url_; }

  // The job at `now`. Any thread.
  void Show(Time now, const proto::JobView& view);

  // For a page that shows several jobs, one after the other: what is shown from
  // now on is another one's, with `title` over it. Any thread.
  void BeginJob(std::string title);
  // One of them has been run, now or earlier: its curves stay. Any thread.
  void Keep(EarlierJob job);

 private:
  JobPage() = default;
  void Answer(WebRequest& request);
  // False: there are enough.
  bool AddStream();
  void Stream(WebRequest& request);
  // What readers are told.
  struct Shown {
    JobState state;
    JobSeries series;
    int64_t version = 0;  // each is another one; 0: nothing yet
  };
  Shown Copy();

  std::string url_;
  std::string token_;
  std::string html_;

  Mutex mutex_;
  Shown shown_ ABSL_GUARDED_BY(mutex_);
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<WebServer> server_;  // its threads use what is above
};

// A page that lives as long as the coordinator that shows it the job.
absl::StatusOr<CoordinatorWatch> StartPage(const std::string& address,
                                           const std::string& token_file);

// The same for a process of a job, if it hosts the coordinator and a page is
// wanted; else null.
absl::StatusOr<CoordinatorWatch> StartPage(const ClusterOptions& options);

}  // namespace psring

#endif  // PSRING_COMMON_PAGE_JOB_PAGE_H_
