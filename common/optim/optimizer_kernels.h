// The optimizers' loops over the formulas. `g` needs no alignment; the spans do
// not overlap.
#ifndef PSRING_COMMON_OPTIM_OPTIMIZER_KERNELS_H_
#define PSRING_COMMON_OPTIM_OPTIMIZER_KERNELS_H_

#include <cstdint>

#include "common/model/target_clones.h"
#include "common/optim/optimizer_formulas.h"

namespace psring {

void SgdLoop(MomentumFactors f, const UnalignedFloat* g, float* p, int64_t n);
void MomentumLoop(MomentumFactors f, const UnalignedFloat* g, float* p,
                  float* buffer, int64_t n);
void NesterovLoop(MomentumFactors f, const UnalignedFloat* g, float* p,
                  float* buffer, int64_t n);

void AdamLoop(AdamFactors f, const UnalignedFloat* g, float* p, float* exp_avg,
              float* exp_avg_sq, int64_t n);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_OPTIMIZER_KERNELS_H_
