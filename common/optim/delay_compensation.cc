#include "common/optim/delay_compensation.h"

#include "common/model/target_clones.h"

namespace psring {
namespace {

PSRING_TARGET_CLONES
void CompensateLoop(float lambda, const UnalignedFloat* g, const float* now,
                    const float* then, float* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    out[i] = g[i] + lambda * (g[i] * g[i]) * (now[i] - then[i]);
  }
}

}  // namespace

void CompensateDelay(float lambda, const void* gradient, const float* now,
                     const float* then, float* out, int64_t num_elements) {
  CompensateLoop(lambda, static_cast<const UnalignedFloat*>(gradient), now,
                 then, out, num_elements);
}

}  // namespace psring
