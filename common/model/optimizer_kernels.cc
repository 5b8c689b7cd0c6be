#include "common/model/optimizer_kernels.h"

#include <cmath>

namespace psring {

PSRING_TARGET_CLONES
void SgdLoop(float lr, float weight_decay, const UnalignedFloat* g, float* p,
             int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) p[i] -= lr * (g[i] + weight_decay * p[i]);
}

PSRING_TARGET_CLONES
void MomentumLoop(MomentumFactors f, const UnalignedFloat* g, float* p,
                  float* buffer, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float b = f.momentum * buffer[i] + (g[i] + f.weight_decay * p[i]);
    buffer[i] = b;
    p[i] -= f.lr * b;
  }
}

PSRING_TARGET_CLONES
void NesterovLoop(MomentumFactors f, const UnalignedFloat* g, float* p,
                  float* buffer, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float decayed = g[i] + f.weight_decay * p[i];
    const float b = f.momentum * buffer[i] + decayed;
    buffer[i] = b;
    p[i] -= f.lr * (decayed + f.momentum * b);
  }
}

PSRING_TARGET_CLONES
void AdamLoop(AdamFactors f, const UnalignedFloat* g, float* p, float* exp_avg,
              float* exp_avg_sq, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float decayed = g[i] + f.weight_decay * p[i];
    const float m = f.beta1 * exp_avg[i] + f.one_minus_beta1 * decayed;
    const float v =
        f.beta2 * exp_avg_sq[i] + f.one_minus_beta2 * (decayed * decayed);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const float denominator =
        std::sqrt(v) / f.sqrt_bias_correction2 + f.epsilon;
    p[i] = f.keep * p[i] - f.step_size * (m / denominator);
  }
}

}  // namespace psring
