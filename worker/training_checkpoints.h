// The checkpoints of a training, which all workers meet for and rank 0 writes.
#ifndef PSRING_WORKER_TRAINING_CHECKPOINTS_H_
#define PSRING_WORKER_TRAINING_CHECKPOINTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/layout.h"
#include "common/optim/job_plan.h"
#include "common/trace/timeline.h"
#include "worker/checkpoint.h"
#include "worker/checkpoint_directory.h"
#include "worker/models/classifier.h"
#include "worker/own_checkpoints.h"

namespace psring {

struct CheckpointOptions {
  std::string directory;  // rank 0's, absolute; empty: it writes none
  int64_t every = 0;      // steps, the same on all workers; 0: at the end only
  int64_t keep = 3;       // the newest so many; 0: all
  // Rank 0's, of the directory; it outlives what writes there. Null: nobody
  // else writes there.
  CheckpointLock* lock = nullptr;
};

// One thread's own, the exchange's. All workers make the same calls after the
// same steps; all block. Meeting takes at most twice the step timeout. Writing
// may take longer: whoever writes works, so the coordinator ends the job of one
// that hangs (--progress-timeout) or dies.
class TrainingCheckpoints {
 public:
  // What is saved, and who takes part; all of it outlives this.
  struct Parts {
    const Classifier& model;
    const Layout& layout;
    GradientExchange& exchange;
    Member& member;
    Track* track = nullptr;  // null: no timeline
  };

  // `start`: where the training began.
  TrainingCheckpoints(const Parts& parts, CheckpointOptions options,
                      absl::Duration step_timeout, JobPlan plan,
                      Progress start);

  // Once, before the others: learns whether rank 0 writes any, and which
  // checkpoints are this run's. Where rank 0 does not, a directory of another
  // worker's is an error.
  absl::Status Begin();

  // Whether a checkpoint follows the steps from `before` to `step`.
  bool IsDue(int64_t before, int64_t step) const;

  // After the steps from `before` to `step`: a checkpoint if one is due. Nobody
  // goes on before it is there. One that cannot be written is a warning; what
  // ends the job is an error, and so are parameters that are not finite.
  absl::Status AfterSteps(int64_t before, int64_t step);

  // The steps are over, `updates` of them: one that cannot be written is an
  // error, of rank 0 alone where only the disk is at fault.
  absl::Status AtEnd(int64_t step, int64_t updates);

 private:
  absl::Status Meet();
  // Nobody goes on before rank 0 has written.
  absl::Status AwaitWriter();
  // OUT_OF_RANGE names a parameter that is not finite.
  absl::Status CheckFinite(int64_t step) const;
  // Rank 0 only.
  absl::Status Write(int64_t step, int64_t updates);
  Time Deadline() const { return StepDeadline(step_timeout_); }

  const Parts parts_;
  const CheckpointOptions options_;
  const absl::Duration step_timeout_;
  const JobPlan plan_;
  const Progress start_;
  const bool writes_;  // this worker
  bool rank_0_writes_ = false;
  int64_t num_met_ = 0;
  OwnCheckpoints own_;  // where this worker writes
};

}  // namespace psring

#endif  // PSRING_WORKER_TRAINING_CHECKPOINTS_H_
