// Clipping by the global norm, as torch.nn.utils.clip_grad_norm_ defines it.
#ifndef PSRING_COMMON_OPTIM_GRADIENT_CLIP_H_
#define PSRING_COMMON_OPTIM_GRADIENT_CLIP_H_

#include "absl/types/span.h"

namespace psring {

// The L2 norm, added up in float64 in an order of its own: the same bits on
// every machine.
double GlobalNorm(absl::Span<const float> values);

// Multiplies by max_norm / (norm + 1e-6) where that is below 1. Returns the
// norm before; one that is not finite leaves the values as they are.
double ClipToNorm(double max_norm, absl::Span<float> values);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_GRADIENT_CLIP_H_
