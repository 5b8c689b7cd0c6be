// Random pixels in the shape of any data set, to measure speed without one.
#ifndef PSRING_WORKER_DATA_SYNTHETIC_DATASET_H_
#define PSRING_WORKER_DATA_SYNTHETIC_DATASET_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/dataset.h"

namespace psring {

struct SyntheticOptions {
  ImageShape shape = {3, 32, 32, 10};
  int64_t num_train = 1024;
  int64_t num_test = 64;
};

// "3x224x224,classes=1000,train=4096,test=64": the shape, channels x height x
// width, and then the others, each optional. INVALID_ARGUMENT names the part
// that is wrong, or says how many bytes it would take.
absl::StatusOr<SyntheticOptions> ParseSyntheticOptions(absl::string_view text);

// The same on every machine; there is nothing to learn in it.
DatasetPair DrawSynthetic(const SyntheticOptions& options);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_SYNTHETIC_DATASET_H_
