// MNIST, and what uses its files: Fashion-MNIST, KMNIST.
#ifndef PSRING_WORKER_DATA_IDX_DATASET_H_
#define PSRING_WORKER_DATA_IDX_DATASET_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace psring {

// Reads train-images-idx3-ubyte, train-labels-idx1-ubyte and the two of t10k-
// from `folder`, plain or with .gz: ten classes, one channel. Format: "The IDX
// file format", http://yann.lecun.com/exdb/mnist/. Errors name the file:
// missing (with what was tried), cut short, another magic number, a size in the
// header that the file does not have, images and labels that differ in number,
// a label above 9, training and test images that differ in size. Blocks on the
// disk.
absl::StatusOr<DatasetPair> LoadIdx(const std::string& folder);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_IDX_DATASET_H_
