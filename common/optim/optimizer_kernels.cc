#include "common/optim/optimizer_kernels.h"

#include <variant>

#include "common/model/target_clones.h"

// Into every clone of UpdateElements, to be compiled for its instruction set.
#define PSRING_IN_CLONE [[gnu::always_inline]] inline

namespace psring {
namespace {

// The loop over `Formula`, if that is the one.
template <typename Formula>
PSRING_IN_CLONE void LoopIf(const OptimizerFormula& formula,
                            const UnalignedFloat* g, float* p,
                            float* const* slots, int64_t n) {
  const Formula* const chosen = std::get_if<Formula>(&formula);
  if (chosen == nullptr) return;
  const Formula f = *chosen;  // here no store can change it
  float* s[kMaxOptimizerSlots] = {};
  for (int k = 0; k < Formula::kNumSlots; ++k) s[k] = slots[k];
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) UpdateElement(f, g[i], p[i], s, i);
}

template <typename... Formulas>
PSRING_IN_CLONE void LoopOf(const std::variant<Formulas...>& formula,
                            const UnalignedFloat* g, float* p,
                            float* const* slots, int64_t n) {
  (LoopIf<Formulas>(formula, g, p, slots, n), ...);
}

}  // namespace

PSRING_TARGET_CLONES
void UpdateElements(const OptimizerFormula& formula, const void* gradient,
                    float* parameters, float* const* slots, int64_t n) {
  LoopOf(formula, static_cast<const UnalignedFloat*>(gradient), parameters,
         slots, n);
}

}  // namespace psring
