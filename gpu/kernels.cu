#include <variant>

#include "gpu/kernels.h"

namespace psring {
namespace {

constexpr int kThreads = 256;
// Enough blocks to fill any GPU of today several times over; the rest is done
// by the loop in each.
constexpr int64_t kMaxBlocks = 4096;

// Calls f(i) for every i below n.
template <typename F>
__global__ void ForEach(int64_t n, F f) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < n; i += stride) {
    f(i);
  }
}

template <typename F>
cudaError_t Launch(int64_t n, cudaStream_t stream, F f) {
  if (n == 0) return cudaSuccess;
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  ForEach<<<static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks),
            kThreads, 0, stream>>>(n, f);
  return cudaGetLastError();
}

template <typename Formula>
cudaError_t LaunchFormula(Formula formula, float scale, UpdateOperands o,
                          cudaStream_t stream) {
  return Launch(o.num_elements, stream, [=] __device__(int64_t i) {
    float p = o.parameters[i];  // the formula works in registers
    UpdateElement(formula, o.gradient[i] * scale, p, o.slots, i);
    o.parameters[i] = p;
  });
}

}  // namespace

cudaError_t LaunchScale(float* data, float scale, int64_t num_elements,
                        cudaStream_t stream) {
  return Launch(num_elements, stream,
                [=] __device__(int64_t i) { data[i] *= scale; });
}

cudaError_t LaunchUpdate(const OptimizerFormula& formula, float scale,
                         const UpdateOperands& operands, cudaStream_t stream) {
  return std::visit(
      [&](const auto& f) { return LaunchFormula(f, scale, operands, stream); },
      formula);
}

}  // namespace psring
