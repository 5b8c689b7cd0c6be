#include "worker/torch/tensors.h"

#include <ATen/Context.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/nll_loss.h>
#include <torch/version.h>

#include <vector>

#define PSRING_TORCH_HAS_FOREACH_COPY \
  (TORCH_VERSION_MAJOR > 2 ||         \
   (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1))

#if PSRING_TORCH_HAS_FOREACH_COPY
#include <ATen/ops/_foreach_copy.h>
#endif

namespace psring {

at::Tensor NewTensor(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, type);
}

at::Tensor TensorAt(float* memory, at::IntArrayRef shape, at::Device device) {
  return at::from_blob(memory, shape, at::TensorOptions().device(device));
}

#if PSRING_TORCH_HAS_FOREACH_COPY
namespace {

// Whether two tensors have their elements at the same places. Strides of
// dimensions of size 1 do not count: channels last, they are others.
bool LieAlike(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() ||
      a.device() != b.device()) {
    return false;
  }
  for (int64_t i = 0; i < a.dim(); ++i) {
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

}  // namespace

void CopyAll(at::TensorList to, at::TensorList from) {
  std::vector<at::Tensor> places;
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < to.size(); ++i) {
    if (!LieAlike(to[i], from[i])) {
      to[i].copy_(from[i]);
      continue;
    }
    places.push_back(to[i]);
    values.push_back(from[i].strides() == to[i].strides()
                         ? from[i]
                         : from[i].as_strided(to[i].sizes(), to[i].strides()));
  }
  if (!places.empty()) at::_foreach_copy_(places, values);
}
#else
void CopyAll(at::TensorList to, at::TensorList from) {
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}
#endif

void SeedLibtorch(uint64_t seed) { at::manual_seed(seed); }

at::Tensor MeanNllLoss(const at::Tensor& output, const at::Tensor& labels) {
  return at::nll_loss(output, labels);
}

at::Tensor SumNllLoss(const at::Tensor& output, const at::Tensor& labels) {
  return at::nll_loss(output, labels, {}, at::Reduction::Sum);
}

}  // namespace psring
