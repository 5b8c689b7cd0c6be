// Fully connected layers.
#ifndef PSRING_WORKER_MODELS_MLP_H_
#define PSRING_WORKER_MODELS_MLP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/image_shape.h"
#include "worker/models/classifier.h"

namespace psring {

// `sizes` is "784-2048-2048-10": the values of an image, the width of every
// hidden layer, the classes; at least two numbers. Layers fc1, fc2, ... with
// ReLU between them. INVALID_ARGUMENT for what is not a number, and for a first
// or last number that does not fit the data, with both.
absl::StatusOr<std::unique_ptr<Classifier>> CreateMlp(absl::string_view sizes,
                                                      const ImageShape& shape);

}  // namespace psring

#endif  // PSRING_WORKER_MODELS_MLP_H_
