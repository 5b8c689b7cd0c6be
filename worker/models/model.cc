#include "worker/models/model.h"

#include <exception>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/models/lenet.h"
#include "worker/models/mlp.h"
#include "worker/models/resnet.h"
#include "worker/torch/tensors.h"
#include "worker/torch/torch_error.h"

namespace psring {
namespace {

using Created = absl::StatusOr<std::unique_ptr<Classifier>>;

absl::Status CheckShape(const ImageShape& shape) {
  if (shape.channels >= 1 && shape.height >= 1 && shape.width >= 1 &&
      shape.num_classes >= 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot work on images of ", shape.channels, "x", shape.height, "x",
      shape.width, " in ", shape.num_classes, " classes"));
}

Created CreateByName(absl::string_view spec, const ImageShape& shape) {
  if (absl::Status s = CheckModelName(spec); !s.ok()) return s;
  if (absl::Status status = CheckShape(shape); !status.ok()) return status;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(spec, absl::MaxSplits(':', 1));
  if (parts.first == "mlp") return CreateMlp(parts.second, shape);
  if (parts.first == "lenet") return CreateLeNet(parts.second, shape);
  if (spec == "resnet18") return CreateResNet(ResNetDepth::k18, shape);
  return CreateResNet(ResNetDepth::k50, shape);
}

}  // namespace

absl::Status CheckModelName(absl::string_view spec) {
  for (const char* known : {"lenet", "resnet18", "resnet50"}) {
    if (spec == known) return absl::OkStatus();
  }
  return spec == "mlp" || absl::StartsWith(spec, "mlp:") ||
                 absl::StartsWith(spec, "lenet:dropout=")
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   absl::StrCat("unknown. Known: ", kKnownModels));
}

Created CreateModel(absl::string_view spec, const ImageShape& shape,
                    uint64_t seed) {
  Created model;
  try {
    SeedLibtorch(seed);
    model = CreateByName(spec, shape);
  } catch (const std::exception& error) {
    model = TorchError(error);
  }
  if (model.ok()) return model;
  return absl::Status(
      model.status().code(),
      absl::StrCat("model '", spec, "': ", model.status().message()));
}

}  // namespace psring
