#include "common/optim/optimizer_kernels.h"

#include <cmath>

namespace psring {

PSRING_TARGET_CLONES
void SgdLoop(MomentumFactors f, const UnalignedFloat* g, float* p, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) SgdElement(f, g[i], p[i]);
}

PSRING_TARGET_CLONES
void MomentumLoop(MomentumFactors f, const UnalignedFloat* g, float* p,
                  float* buffer, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) MomentumElement(f, g[i], p[i], buffer[i]);
}

PSRING_TARGET_CLONES
void NesterovLoop(MomentumFactors f, const UnalignedFloat* g, float* p,
                  float* buffer, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) NesterovElement(f, g[i], p[i], buffer[i]);
}

PSRING_TARGET_CLONES
void AdamLoop(AdamFactors f, const UnalignedFloat* g, float* p, float* exp_avg,
              float* exp_avg_sq, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    AdamMoments(f, g[i], p[i], exp_avg[i], exp_avg_sq[i]);
    AdamStep(f, exp_avg[i], std::sqrt(exp_avg_sq[i]), p[i]);
  }
}

}  // namespace psring
