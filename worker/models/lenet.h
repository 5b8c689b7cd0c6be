// The small convolutional network of PyTorch's MNIST example.
#ifndef PSRING_WORKER_MODELS_LENET_H_
#define PSRING_WORKER_MODELS_LENET_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/image_shape.h"
#include "worker/models/classifier.h"

namespace psring {

// conv1 (10 of 5x5), max-pool 2, ReLU; conv2 (20 of 5x5), 2-d dropout, max-pool
// 2, ReLU; fc1 (50), ReLU, dropout; fc2. On 1x28x28 in 10 classes it has 21,840
// parameters. `options`: empty, or "dropout=F" for the part of the values that
// both dropouts zero, 0.5 without, below 1. INVALID_ARGUMENT for another F, and
// where the image is too small: each side needs 16 pixels.
absl::StatusOr<std::unique_ptr<Classifier>> CreateLeNet(
    absl::string_view options, const ImageShape& shape);

}  // namespace psring

#endif  // PSRING_WORKER_MODELS_LENET_H_
