// From the text of --data to a data set.
#ifndef PSRING_WORKER_DATA_LOAD_DATASET_H_
#define PSRING_WORKER_DATA_LOAD_DATASET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/dataset.h"

namespace psring {

// INVALID_ARGUMENT: LoadDataset knows no such data set, or not with those
// options. Looks at no file.
absl::Status CheckDataset(absl::string_view spec);

// What of `spec` all workers have in common: without the folder, which may
// differ between hosts. "mnist" of "mnist:/data/mnist".
std::string DatasetKind(absl::string_view spec);

// mnist:DIR (IDX files; Fashion-MNIST too), cifar10:DIR (binary version),
// images:DIR (JPEG and PNG files in folders by class, read while training),
// digits[:train=N,test=M,seed=S] (embedded; 8000, 2000, 0), or synthetic:SHAPE
// (random pixels). An error names the spec's part or the file at fault; that of
// an unknown spec lists the known. RESOURCE_EXHAUSTED for want of memory.
// Blocks.
absl::StatusOr<DatasetPair> LoadDataset(absl::string_view spec);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_LOAD_DATASET_H_
