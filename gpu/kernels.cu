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

// What an element's update reads and writes, by value: the formulas work in
// registers.
struct Element {
  __device__ Element(const UpdateOperands& o, float scale, int64_t i)
      : o(o), i(i), g(o.gradient[i] * scale), p(o.parameters[i]) {}
  __device__ ~Element() { o.parameters[i] = p; }

  const UpdateOperands& o;
  const int64_t i;
  const float g;
  float p;
};

}  // namespace

cudaError_t LaunchScale(float* data, float scale, int64_t num_elements,
                        cudaStream_t stream) {
  return Launch(num_elements, stream,
                [=] __device__(int64_t i) { data[i] *= scale; });
}

cudaError_t LaunchUpdate(const UpdateFactors& factors, float scale,
                         const UpdateOperands& operands, cudaStream_t stream) {
  const UpdateOperands o = operands;
  const MomentumFactors m = factors.momentum;
  const AdamFactors a = factors.adam;
  const int64_t n = o.num_elements;
  switch (factors.kind) {
    case OptimizerKind::kSgd:
      return Launch(n, stream, [=] __device__(int64_t i) {
        Element e(o, scale, i);
        SgdElement(m, e.g, e.p);
      });
    case OptimizerKind::kMomentum:
      return Launch(n, stream, [=] __device__(int64_t i) {
        Element e(o, scale, i);
        MomentumElement(m, e.g, e.p, o.slots[0][i]);
      });
    case OptimizerKind::kNesterov:
      return Launch(n, stream, [=] __device__(int64_t i) {
        Element e(o, scale, i);
        NesterovElement(m, e.g, e.p, o.slots[0][i]);
      });
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return Launch(n, stream, [=] __device__(int64_t i) {
        Element e(o, scale, i);
        AdamMoments(a, e.g, e.p, o.slots[0][i], o.slots[1][i]);
        AdamStep(a, o.slots[0][i], __fsqrt_rn(o.slots[1][i]), e.p);
      });
    case OptimizerKind::kAssign:
      return Launch(n, stream, [=] __device__(int64_t i) {
        Element e(o, scale, i);
        e.p = e.g;
      });
  }
  return cudaErrorInvalidValue;
}

}  // namespace psring
