// Where a run begins: afresh, or from a checkpoint.
#ifndef PSRING_WORKER_RUN_START_H_
#define PSRING_WORKER_RUN_START_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/cluster/member.h"
#include "common/net/cancellation.h"
#include "protos/cluster.pb.h"
#include "worker/checkpoint_directory.h"
#include "worker/resume.h"

namespace psring {

// A worker's flags.
struct StartWish {
  std::string directory;    // of checkpoints; empty: none
  bool resume = false;      // from the newest checkpoint, or
  bool autoresume = false;  // the same, or afresh where there is none
};

struct RunStart {
  // What this worker reads (LoadState), and, on rank 0, its progress. No
  // checkpoint: it begins with what rank 0 sends, or afresh.
  ResumePoint point;
  // Rank 0's right to write into the directory, to be held until the run ends.
  std::unique_ptr<CheckpointLock> lock;  // null elsewhere
};

// All workers call it when they have joined. Rank 0 locks the directory, and
// chooses and verifies the checkpoint, which nobody else needs to see, except
// with local steps; newer ones that are damaged become step-N.damaged. Fills in
// where `spec`, the same on all workers, begins. Blocks while rank 0 reads,
// which --progress-timeout bounds, or waits for an earlier job's lock, unless
// it is cancelled. Errors of rank 0 are CheckpointLock::Take's and
// FindResumePoint's; FAILED_PRECONDITION where this worker is to resume and
// rank 0 is not.
absl::StatusOr<RunStart> AgreeOnStart(Member& member, const StartWish& wish,
                                      const Cancellation& cancellation,
                                      proto::JobSpec& spec);

}  // namespace psring

#endif  // PSRING_WORKER_RUN_START_H_
