#include "worker/batch.h"

#include "worker/torch/tensors.h"

namespace psring {

Batch BatchOf(const Dataset& dataset, absl::Span<const int64_t> indices,
              at::Device device) {
  const auto size = static_cast<int64_t>(indices.size());
  const ImageShape& shape = dataset.shape;
  const at::Tensor images =
      NewTensor({size, shape.channels, shape.height, shape.width}, at::kFloat);
  const at::Tensor labels = NewTensor({size}, at::kLong);
  dataset.CopyImages(
      indices, {images.data_ptr<float>(), static_cast<size_t>(images.numel())});
  dataset.CopyLabels(indices, {labels.data_ptr<int64_t>(), indices.size()});
  return {images.to(device), labels.to(device)};
}

}  // namespace psring
