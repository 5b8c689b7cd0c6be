#include "worker/torch/tensors.h"

#include <ATen/Context.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/nll_loss.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || \
    (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
#include <ATen/ops/_foreach_copy.h>
#endif

namespace psring {

at::Tensor NewTensor(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, type);
}

at::Tensor TensorAt(float* memory, at::IntArrayRef shape, at::Device device) {
  return at::from_blob(memory, shape, at::TensorOptions().device(device));
}

void CopyAll(at::TensorList to, at::TensorList from) {
#if TORCH_VERSION_MAJOR > 2 || \
    (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
  at::_foreach_copy_(to, from);
#else
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
#endif
}

void SeedLibtorch(uint64_t seed) { at::manual_seed(seed); }

at::Tensor MeanNllLoss(const at::Tensor& output, const at::Tensor& labels) {
  return at::nll_loss(output, labels);
}

at::Tensor SumNllLoss(const at::Tensor& output, const at::Tensor& labels) {
  return at::nll_loss(output, labels, {}, at::Reduction::Sum);
}

}  // namespace psring
