// The optimizers' loops. `g` needs no alignment; the spans do not overlap.
#ifndef PSRING_COMMON_MODEL_OPTIMIZER_KERNELS_H_
#define PSRING_COMMON_MODEL_OPTIMIZER_KERNELS_H_

#include <cstdint>

#include "common/model/target_clones.h"

namespace psring {

// p -= lr * (g + weight_decay * p)
void SgdLoop(float lr, float weight_decay, const UnalignedFloat* g, float* p,
             int64_t n);

struct MomentumFactors {
  float lr;
  float momentum;
  float weight_decay;
};

void MomentumLoop(MomentumFactors f, const UnalignedFloat* g, float* p,
                  float* buffer, int64_t n);
void NesterovLoop(MomentumFactors f, const UnalignedFloat* g, float* p,
                  float* buffer, int64_t n);

// One update's scalars, computed in double as torch does.
struct AdamFactors {
  float keep;          // 1 - lr * decoupled weight decay
  float weight_decay;  // of the gradient
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;              // lr / (1 - beta1^update)
  float sqrt_bias_correction2;  // sqrt(1 - beta2^update)
  float epsilon;
};

void AdamLoop(AdamFactors f, const UnalignedFloat* g, float* p, float* exp_avg,
              float* exp_avg_sq, int64_t n);

}  // namespace psring

#endif  // PSRING_COMMON_MODEL_OPTIMIZER_KERNELS_H_
