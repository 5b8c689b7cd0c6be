// The weights that a job has left in its checkpoints.
#ifndef PSRING_LAB_STUDY_WEIGHTS_H_
#define PSRING_LAB_STUDY_WEIGHTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace psring {

// The path of the weights file that was written last anywhere below
// `checkpoint_dir`. NOT_FOUND when there is none.
absl::StatusOr<std::string> FindLastWeights(const std::string& checkpoint_dir);

absl::StatusOr<uint32_t> Crc32OfFile(const std::string& path);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_WEIGHTS_H_
