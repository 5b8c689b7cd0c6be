// The loop of every optimizer over its formula.
#ifndef PSRING_COMMON_OPTIM_OPTIMIZER_KERNELS_H_
#define PSRING_COMMON_OPTIM_OPTIMIZER_KERNELS_H_

#include <cstdint>

#include "common/optim/optimizer_formulas.h"

namespace psring {

// One update of n elements. `gradient` needs no alignment; slots[k] is the k-th
// slot's run of them, for as many slots as the formula has; no two runs
// overlap.
void UpdateElements(const OptimizerFormula& formula, const void* gradient,
                    float* parameters, float* const* slots, int64_t n);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_OPTIMIZER_KERNELS_H_
