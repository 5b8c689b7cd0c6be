// Looks at a job that runs, once a second, from beside it.
#ifndef PSRING_LAB_HOST_JOB_WATCH_H_
#define PSRING_LAB_HOST_JOB_WATCH_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster/security.h"
#include "common/mutex.h"
#include "common/net/address.h"
#include "common/net/cancellation.h"
#include "common/net/context.h"
#include "common/page/job_state.h"

namespace psring {

class JobWatch {
 public:
  // What people are told of a job; on the watch's thread.
  using Text = std::function<std::vector<std::string>(const JobState&)>;

  // Watches the job of this coordinator until it goes. A coordinator that does
  // not answer is asked again. Errors: the key cannot be used, no such host.
  static absl::StatusOr<std::unique_ptr<JobWatch>> Start(
      const Security& security, const HostPort& coordinator, Text text);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // The job as it was seen last; empty before that. Never blocks.
  std::vector<std::string> lines() const;
  // Whether it was asked after `since` and waited for processes to join; or has
  // not answered since, and never had all of them.
  bool FormingSince(Time since) const;

 private:
  explicit JobWatch(Text text) : text_(std::move(text)) {}
  void Run(const std::string& endpoint);

  const Text text_;
  Context context_;
  Cancellation end_;
  mutable Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  // When that was asked to which it has answered that it forms.
  Time forming_ ABSL_GUARDED_BY(mutex_) = Time::InfinitePast();
  Time answered_ ABSL_GUARDED_BY(mutex_) = Time::InfinitePast();
  bool formed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_JOB_WATCH_H_
