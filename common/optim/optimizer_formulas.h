// The optimizers' formulas for one element. Host loops and GPU kernels are made
// of the same ones, so both give the same bits: without fused multiply-adds
// (-ffp-contract=off, --fmad=false) every operation here is rounded as IEEE 754
// says, square roots too.
//
// A formula is a type: its members are the scalars of one update, its call is
// that update of one element, with gradient `g`, parameter `p` and one float of
// each of its slots.
#ifndef PSRING_COMMON_OPTIM_OPTIMIZER_FORMULAS_H_
#define PSRING_COMMON_OPTIM_OPTIMIZER_FORMULAS_H_

#include <cmath>
#include <cstdint>
#include <variant>

namespace psring {

inline constexpr int kMaxOptimizerSlots = 2;

struct SgdFormula {
  static constexpr int kNumSlots = 0;
  float lr;
  float weight_decay;

  constexpr void operator()(float g, float& p) const {
    p -= lr * (g + weight_decay * p);
  }
};

struct MomentumFormula {
  static constexpr int kNumSlots = 1;
  float lr;
  float momentum;
  float weight_decay;

  constexpr void operator()(float g, float& p, float& buffer) const {
    buffer = momentum * buffer + (g + weight_decay * p);
    p -= lr * buffer;
  }
};

struct NesterovFormula {
  static constexpr int kNumSlots = 1;
  float lr;
  float momentum;
  float weight_decay;

  constexpr void operator()(float g, float& p, float& buffer) const {
    const float decayed = g + weight_decay * p;
    buffer = momentum * buffer + decayed;
    p -= lr * (decayed + momentum * buffer);
  }
};

// Adam and AdamW. The scalars are computed in double, as torch does.
struct AdamFormula {
  static constexpr int kNumSlots = 2;
  float keep;          // 1 - lr * decoupled weight decay
  float weight_decay;  // of the gradient
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;              // lr / (1 - beta1^update)
  float sqrt_bias_correction2;  // sqrt(1 - beta2^update)
  float epsilon;

  constexpr void operator()(float g, float& p, float& exp_avg,
                            float& exp_avg_sq) const {
    const float decayed = g + weight_decay * p;
    exp_avg = beta1 * exp_avg + one_minus_beta1 * decayed;
    exp_avg_sq = beta2 * exp_avg_sq + one_minus_beta2 * (decayed * decayed);
    const float denominator =
        std::sqrt(exp_avg_sq) / sqrt_bias_correction2 + epsilon;
    p = keep * p - step_size * (exp_avg / denominator);
  }
};

// Takes what it is given for the parameters themselves (local SGD).
struct AssignFormula {
  static constexpr int kNumSlots = 0;

  constexpr void operator()(float g, float& p) const { p = g; }
};

// One update of any optimizer.
using OptimizerFormula =
    std::variant<SgdFormula, MomentumFormula, NesterovFormula, AdamFormula,
                 AssignFormula>;

// The update of the i-th element; slots[k] is the k-th slot.
template <typename Formula>
constexpr void UpdateElement(const Formula& formula, float g, float& p,
                             float* const* slots, int64_t i) {
  static_assert(Formula::kNumSlots <= kMaxOptimizerSlots);
  if constexpr (Formula::kNumSlots == 0) {
    formula(g, p);
  } else if constexpr (Formula::kNumSlots == 1) {
    formula(g, p, slots[0][i]);
  } else {
    formula(g, p, slots[0][i], slots[1][i]);
  }
}

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_OPTIMIZER_FORMULAS_H_
