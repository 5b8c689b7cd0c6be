// CIFAR-10 in its binary version.
#ifndef PSRING_WORKER_DATA_CIFAR10_DATASET_H_
#define PSRING_WORKER_DATA_CIFAR10_DATASET_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace psring {

// Reads data_batch_1.bin .. data_batch_5.bin and test_batch.bin from `folder`,
// or from cifar-10-batches-bin in it. A record is one byte of label and 3 x 32
// x 32 bytes of pixels (https://www.cs.toronto.edu/~kriz/cifar.html); a file
// may hold any number of records, the original has 10,000. Errors name the
// file: missing (with what was tried), empty, not whole records, a label
// above 9. Blocks on the disk.
absl::StatusOr<DatasetPair> LoadCifar10(const std::string& folder);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_CIFAR10_DATASET_H_
