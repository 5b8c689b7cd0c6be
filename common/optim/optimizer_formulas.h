// The optimizers' formulas for one element. Host loops and GPU kernels are made
// of the same ones, so both give the same bits: without fused multiply-adds
// (-ffp-contract=off, --fmad=false) every operation here is rounded as IEEE 754
// says.
#ifndef PSRING_COMMON_OPTIM_OPTIMIZER_FORMULAS_H_
#define PSRING_COMMON_OPTIM_OPTIMIZER_FORMULAS_H_

namespace psring {

// kAssign takes what it is given for the parameters themselves (local SGD).
enum class OptimizerKind { kSgd, kMomentum, kNesterov, kAdam, kAdamW, kAssign };

struct MomentumFactors {
  float lr;
  float momentum;
  float weight_decay;
};

// Computed in double, as torch does.
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

// One update's scalars.
struct UpdateFactors {
  OptimizerKind kind;
  MomentumFactors momentum;  // kAdam and kAdamW: unused
  AdamFactors adam;          // kAdam and kAdamW only
};

constexpr void SgdElement(const MomentumFactors& f, float g, float& p) {
  p -= f.lr * (g + f.weight_decay * p);
}

constexpr void MomentumElement(const MomentumFactors& f, float g, float& p,
                               float& buffer) {
  buffer = f.momentum * buffer + (g + f.weight_decay * p);
  p -= f.lr * buffer;
}

constexpr void NesterovElement(const MomentumFactors& f, float g, float& p,
                               float& buffer) {
  const float decayed = g + f.weight_decay * p;
  buffer = f.momentum * buffer + decayed;
  p -= f.lr * (decayed + f.momentum * buffer);
}

// An update is AdamMoments, then AdamStep with the square root of exp_avg_sq.
constexpr void AdamMoments(const AdamFactors& f, float g, float p,
                           float& exp_avg, float& exp_avg_sq) {
  const float decayed = g + f.weight_decay * p;
  exp_avg = f.beta1 * exp_avg + f.one_minus_beta1 * decayed;
  exp_avg_sq = f.beta2 * exp_avg_sq + f.one_minus_beta2 * (decayed * decayed);
}

constexpr void AdamStep(const AdamFactors& f, float exp_avg, float root,
                        float& p) {
  const float denominator = root / f.sqrt_bias_correction2 + f.epsilon;
  p = f.keep * p - f.step_size * (exp_avg / denominator);
}

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_OPTIMIZER_FORMULAS_H_
