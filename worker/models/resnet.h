// Residual networks (He et al. 2015, "Deep Residual Learning").
#ifndef PSRING_WORKER_MODELS_RESNET_H_
#define PSRING_WORKER_MODELS_RESNET_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/data/image_shape.h"
#include "worker/models/classifier.h"

namespace psring {

enum class ResNetDepth { k18, k50 };

// torchvision's resnet18 and resnet50: its structure (in ResNet-50 the stride
// lies in the 3x3 convolution), names, and first weights. 11,689,512 and
// 25,557,032 parameters at 3 channels and 1000 classes. Any size of image: the
// last pooling takes what is left.
absl::StatusOr<std::unique_ptr<Classifier>> CreateResNet(
    ResNetDepth depth, const ImageShape& shape);

}  // namespace psring

#endif  // PSRING_WORKER_MODELS_RESNET_H_
