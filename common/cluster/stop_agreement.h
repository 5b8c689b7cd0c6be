// The step after which all workers of a job stop, when somebody wishes that it
// ended early: SIGTERM, before a host is taken away.
//
// A wish is announced to all workers. Each answers, from a thread of its own,
// with the step that it will not pass before it knows all the answers; the
// largest is where they stop. So a step costs nothing until there is a wish,
// and no worker waits for one that waits for its gradients. Where a worker may
// be any number of steps ahead, each stops after its own next step instead.
#ifndef PSRING_COMMON_CLUSTER_STOP_AGREEMENT_H_
#define PSRING_COMMON_CLUSTER_STOP_AGREEMENT_H_

#include <cstdint>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster/announcements.h"
#include "common/cluster/member.h"
#include "common/mutex.h"
#include "protos/cluster.pb.h"

namespace psring {

class StopAgreement {
 public:
  enum class Where { kSameStep, kOwnStep };

  // Of a worker that is at `step`. All stop at a multiple of `period`. Every
  // worker of the job has one, until it has left, and servers are told that a
  // wish is heeded. `member` outlives it.
  StopAgreement(Member& member, int64_t step, int64_t period,
                Where where = Where::kSameStep);
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // Any thread; never blocks.
  void Wish() { member_.Announce(proto::WORKER, kStopWish, ""); }

  // Any thread; never blocks: whether this worker knows of a wish. Others may
  // not yet.
  bool wished();

  // The trainer's thread, whenever it has made a step: whether it was the last
  // one. Blocks only where others have not answered a wish yet.
  absl::StatusOr<bool> StopsAfter(int64_t step, Time deadline);

 private:
  void Run();
  // The largest of all workers' promises.
  absl::StatusOr<int64_t> Agree(int64_t promise);

  Member& member_;
  const int64_t period_;
  const Where where_;
  Mutex mutex_;
  int64_t step_ ABSL_GUARDED_BY(mutex_);
  std::optional<int64_t> promise_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<int64_t>> last_step_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_STOP_AGREEMENT_H_
