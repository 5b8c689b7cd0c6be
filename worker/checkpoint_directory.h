// A directory of checkpoints: what it holds, and who writes there.
#ifndef PSRING_WORKER_CHECKPOINT_DIRECTORY_H_
#define PSRING_WORKER_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/state/file.h"

namespace psring {

struct CheckpointEntry {
  int64_t step = 0;
  std::string path;
};

// "step-00000050": at least 8 digits.
std::string CheckpointName(int64_t step);

// By step, the newest last: directories whose names are "step-" and digits,
// and nothing else. None where there is no such directory. Errors name it.
absl::StatusOr<std::vector<CheckpointEntry>> CheckpointsIn(
    const std::string& directory);

// The names of what is not a checkpoint yet, or no more, begin with this.
inline constexpr char kTemporaryPrefix[] = ".incomplete-";

// Removes all but the `keep` newest of the checkpoints up to `step`; none with
// keep = 0. Later ones belong to a run that went further: they stay. What
// cannot be removed stays too, with a warning, and under its name if it is
// whole.
void RemoveOldCheckpoints(const std::string& directory, int64_t step,
                          int64_t keep);

// The right to write into a directory, which one job has at a time: rank 0 has
// locked DIR/.lock, and the system frees it when its process ends, however.
class CheckpointLock {
 public:
  // Creates `directory` and proves that it can be written. Then what dead jobs
  // have left incomplete goes. Errors: without `resume`, checkpoints of an
  // earlier run (nothing is overwritten); UNAVAILABLE with the name of the
  // holder, if it still holds the lock at `deadline`, or has written
  // checkpoints and nobody waits to resume from them; of `goes_on`, which is
  // asked while it waits. `holder` is this job, in words. A file system that
  // cannot lock is logged as a warning.
  static absl::StatusOr<CheckpointLock> Take(
      const std::string& directory, bool resume, const std::string& holder,
      Time deadline,
      const std::function<absl::Status()>& goes_on = absl::OkStatus);

  // To be called before each checkpoint: somebody may have removed the
  // directory, or its DIR/.lock, so that another job could lock a new one. Then
  // takes it as at the start, and waits a second at most. FAILED_PRECONDITION
  // where another job has it, by its name, or where a checkpoint lies there
  // that `is_others`, called with its path; else Take's errors. After an error
  // the next call tries again.
  absl::Status Keep(
      const std::function<bool(const std::string& checkpoint)>& is_others);

 private:
  CheckpointLock(std::string directory, std::string holder,
                 std::optional<File> file)
      : directory_(std::move(directory)),
        holder_(std::move(holder)),
        file_(std::move(file)) {}

  absl::StatusOr<bool> IsHeld() const;

  std::string directory_;
  std::string holder_;
  std::optional<File> file_;  // none: it cannot be locked
  bool lost_ = false;
};

}  // namespace psring

#endif  // PSRING_WORKER_CHECKPOINT_DIRECTORY_H_
