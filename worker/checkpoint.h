// Checkpoints on disk.
//
//   DIR/step-00000050/model.safetensors      weights (state_files.h)
//                     optimizer.safetensors  optimizer state
//                     manifest.json          progress, sizes, checksums
//                     (manifest.h)
//
// A checkpoint appears whole or not at all: it is written under a temporary
// name that no other job has, synced, and renamed. It holds no trace of the
// topology that wrote it, so either mode resumes from it.
#ifndef PSRING_WORKER_CHECKPOINT_H_
#define PSRING_WORKER_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "common/state/state_files.h"
#include "protos/cluster.pb.h"
#include "worker/manifest.h"
#include "worker/own_checkpoints.h"

namespace psring {

struct CheckpointContents {
  Progress progress;
  const Layout& layout;
  std::vector<std::string> slot_names;
  std::vector<ExtraTensor> extras;
};

// Writes DIR/step-N. `save_state` fills the files that were laid out in the
// directory it is given (GradientExchange::SaveState) and says what it wrote:
// checksums are of what was in memory, and the files are read again to see that
// they have it. One of this step that verifies stays as it is: ALREADY_EXISTS
// where it is not of `own`. One that is damaged is renamed to step-N.damaged;
// one that cannot be read is an error. Where it fails, with `save_state`'s
// error or a file's, nothing is left.
absl::Status WriteCheckpoint(
    const std::string& directory, const CheckpointContents& contents,
    const std::function<absl::StatusOr<proto::SavedState>(const std::string&)>&
        save_state,
    const OwnCheckpoints& own = {});

// Renames it to step-N.damaged: what cannot be resumed from must not stand in
// the way of others, nor count among those that are kept.
void MoveDamagedAside(const std::string& checkpoint);

// Reads the manifest and verifies every file's size and checksum. Errors name
// the file: ReadManifest's and File's; DATA_LOSS where it is damaged.
absl::StatusOr<Progress> VerifyCheckpoint(const std::string& checkpoint);

// Whether an error of VerifyCheckpoint says that files are damaged or missing.
// Others say that they cannot be read here and now: they may be whole.
bool IsDamage(const absl::Status& status);

}  // namespace psring

#endif  // PSRING_WORKER_CHECKPOINT_H_
