// Checkpoints on disk.
//
//   DIR/step-00000050/model.safetensors      weights (state_files.h)
//                     optimizer.safetensors  optimizer state
//                     manifest.json          progress, sizes, checksums
//                     (manifest.h)
//
// A checkpoint appears whole or not at all: it is written under a temporary
// name, synced, and renamed. It holds no trace of the topology that wrote it,
// so either mode resumes from it.
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
#include "worker/manifest.h"

namespace psring {

struct CheckpointContents {
  Progress progress;
  const Layout& layout;
  std::vector<std::string> slot_names;
  std::vector<ExtraTensor> extras;
};

// Creates `directory` and proves that it can be written. Without `resume`, a
// directory that holds checkpoints already is an error: nothing is overwritten.
absl::Status PrepareCheckpointDirectory(const std::string& directory,
                                        bool resume);

// Writes DIR/step-N. `save_state` fills the files that were laid out in the
// directory it is given (GradientExchange::SaveState).
absl::Status WriteCheckpoint(
    const std::string& directory, const CheckpointContents& contents,
    const std::function<absl::Status(const std::string&)>& save_state);

// The newest checkpoint's directory; NOT_FOUND when there is none.
absl::StatusOr<std::string> LatestCheckpoint(const std::string& directory);

// Reads the manifest and verifies every file's size and checksum; DATA_LOSS
// names the file that is damaged and what to do.
absl::StatusOr<Progress> VerifyCheckpoint(const std::string& checkpoint);

}  // namespace psring

#endif  // PSRING_WORKER_CHECKPOINT_H_
