// From the text of --model to a model.
#ifndef PSRING_WORKER_MODELS_MODEL_H_
#define PSRING_WORKER_MODELS_MODEL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/data/image_shape.h"
#include "worker/models/classifier.h"

namespace psring {

inline constexpr char kKnownModels[] =
    "lenet[:dropout=0.5], mlp:784-2048-2048-10 (any sizes), resnet18, "
    "resnet50";

// INVALID_ARGUMENT lists the known: `spec` names none of them.
absl::Status CheckModelName(absl::string_view spec);

// One of kKnownModels, on the CPU, in training mode. Seeds libtorch's default
// generator and draws the first weights from it: the same seed, the same
// weights in every process of a host type. An error names the part of the spec
// at fault; that of an unknown spec lists the known. What libtorch throws
// becomes INTERNAL.
absl::StatusOr<std::unique_ptr<Classifier>> CreateModel(absl::string_view spec,
                                                        const ImageShape& shape,
                                                        uint64_t seed);

}  // namespace psring

#endif  // PSRING_WORKER_MODELS_MODEL_H_
