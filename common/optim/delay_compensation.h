// Delay-compensated asynchronous SGD (Zheng et al. 2017).
#ifndef PSRING_COMMON_OPTIM_DELAY_COMPENSATION_H_
#define PSRING_COMMON_OPTIM_DELAY_COMPENSATION_H_

#include <cstdint>

namespace psring {

// out[i] = g[i] + lambda * g[i] * g[i] * (now[i] - then[i]): what the gradient
// g, computed on the parameters `then`, would about be on `now`. The square
// stands for the Hessian's diagonal. `gradient` is float32 and needs no
// alignment; nothing overlaps.
void CompensateDelay(float lambda, const void* gradient, const float* now,
                     const float* then, float* out, int64_t num_elements);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_DELAY_COMPENSATION_H_
