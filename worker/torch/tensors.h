// The functions of libtorch that the trainer calls, without the headers of its
// operators, which cost every file that includes them 10 s of compilation. (A
// tensor's own methods come with ATen/core/Tensor.h.) All throw what libtorch
// throws.
#ifndef PSRING_WORKER_TORCH_TENSORS_H_
#define PSRING_WORKER_TORCH_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace psring {

// On the CPU, its values undefined.
at::Tensor NewTensor(at::IntArrayRef shape, at::ScalarType type);

// float32, in memory of `device` that somebody else owns.
at::Tensor TensorAt(float* memory, at::IntArrayRef shape, at::Device device);

// to[i] = from[i], by as few calls of the device as libtorch has for it.
void CopyAll(at::TensorList to, at::TensorList from);

// Seeds libtorch's default generators, of dropout and of first weights.
void SeedLibtorch(uint64_t seed);

// The negative log-likelihood of a batch, from log-probabilities [batch,
// classes]: the samples' mean, or their sum.
at::Tensor MeanNllLoss(const at::Tensor& output, const at::Tensor& labels);
at::Tensor SumNllLoss(const at::Tensor& output, const at::Tensor& labels);

}  // namespace psring

#endif  // PSRING_WORKER_TORCH_TENSORS_H_
