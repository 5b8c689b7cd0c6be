#include "common/optim/optimizer.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/optim/optimizer_kernels.h"

namespace psring {
namespace {

// Beyond float32 a factor would be infinite, and 0 * infinity is not 0.
constexpr double kLargest = std::numeric_limits<float>::max();
constexpr double kSmallest = std::numeric_limits<float>::min();

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("optimizer: ", what));
}

absl::Status CheckRange(const char* name, double value) {
  if (value >= 0 && value <= kLargest) return absl::OkStatus();
  return Bad(
      absl::StrCat(name, " must be in [0, ", kLargest, "], not ", value));
}

absl::Status CheckFraction(const char* name, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return Bad(absl::StrCat(name, " must be in [0, 1), not ", value));
}

absl::Status CheckMomentum(const proto::OptimizerSettings& s) {
  if (absl::Status status = CheckFraction("momentum", s.momentum());
      !status.ok()) {
    return status;
  }
  if (s.name() == "sgd" && s.momentum() != 0) {
    return Bad(absl::StrCat("sgd has no momentum, but momentum is ",
                            s.momentum(), "; use --optimizer=momentum"));
  }
  const bool needs = s.name() == "momentum" || s.name() == "nesterov";
  if (needs && s.momentum() == 0) {
    return Bad(absl::StrCat(s.name(), " needs momentum in (0, 1), not 0; ",
                            "without momentum use --optimizer=sgd"));
  }
  return absl::OkStatus();
}

absl::Status CheckAdam(const proto::OptimizerSettings& s) {
  absl::Status status = CheckFraction("beta1", s.beta1());
  if (status.ok()) status = CheckFraction("beta2", s.beta2());
  if (!status.ok()) return status;
  if (s.epsilon() >= kSmallest && s.epsilon() <= kLargest) return status;
  return Bad(absl::StrCat("epsilon must be in [", kSmallest, ", ", kLargest,
                          "], not ", s.epsilon()));
}

absl::Status CheckSettings(const proto::OptimizerSettings& s) {
  absl::Status status = CheckRange("lr", s.lr());
  if (status.ok()) status = CheckRange("weight_decay", s.weight_decay());
  if (!status.ok()) return status;
  const bool adam = s.name() == "adam" || s.name() == "adamw";
  return adam ? CheckAdam(s) : CheckMomentum(s);
}

struct Definition {
  const char* name;
  OptimizerKind kind;
  std::vector<std::string> slot_names;  // torch's
};

std::vector<Definition> Definitions() {
  return {
      {"sgd", OptimizerKind::kSgd, {}},
      {"momentum", OptimizerKind::kMomentum, {"momentum_buffer"}},
      {"nesterov", OptimizerKind::kNesterov, {"momentum_buffer"}},
      {"adam", OptimizerKind::kAdam, {"exp_avg", "exp_avg_sq"}},
      {"adamw", OptimizerKind::kAdamW, {"exp_avg", "exp_avg_sq"}},
  };
}

AdamFactors FactorsOf(const proto::OptimizerSettings& s, bool decoupled,
                      int64_t update, double lr) {
  AdamFactors f;
  const double decay = s.weight_decay();
  f.keep = static_cast<float>(decoupled ? 1 - lr * decay : 1);
  f.weight_decay = static_cast<float>(decoupled ? 0 : decay);
  f.beta1 = static_cast<float>(s.beta1());
  f.one_minus_beta1 = static_cast<float>(1 - s.beta1());
  f.beta2 = static_cast<float>(s.beta2());
  f.one_minus_beta2 = static_cast<float>(1 - s.beta2());
  const double count = static_cast<double>(update);
  f.step_size = static_cast<float>(lr / (1 - std::pow(s.beta1(), count)));
  f.sqrt_bias_correction2 =
      static_cast<float>(std::sqrt(1 - std::pow(s.beta2(), count)));
  f.epsilon = static_cast<float>(s.epsilon());
  return f;
}

}  // namespace

std::vector<std::string> OptimizerNames() {
  std::vector<std::string> names;
  for (const Definition& definition : Definitions()) {
    names.push_back(definition.name);
  }
  return names;
}

absl::StatusOr<Optimizer> Optimizer::Create(const proto::OptimizerSettings& s) {
  for (const Definition& definition : Definitions()) {
    if (s.name() != definition.name) continue;
    if (absl::Status status = CheckSettings(s); !status.ok()) return status;
    Optimizer optimizer;
    optimizer.kind_ = definition.kind;
    optimizer.settings_ = s;
    optimizer.slot_names_ = definition.slot_names;
    return optimizer;
  }
  return Bad(absl::StrCat("unknown name \"", s.name(), "\"; choose ",
                          absl::StrJoin(OptimizerNames(), ", ")));
}

UpdateFactors Optimizer::Factors(int64_t update, double lr) const {
  UpdateFactors factors = {};
  factors.kind = kind_;
  if (kind_ == OptimizerKind::kAdam || kind_ == OptimizerKind::kAdamW) {
    factors.adam =
        FactorsOf(settings_, kind_ == OptimizerKind::kAdamW, update, lr);
  } else {
    factors.momentum = {static_cast<float>(lr),
                        static_cast<float>(settings_.momentum()),
                        static_cast<float>(settings_.weight_decay())};
  }
  return factors;
}

absl::StatusOr<Optimizer> Optimizer::ForMean(const proto::OptimizerSettings& s,
                                             bool returns_mean) {
  auto optimizer = Create(s);
  if (!optimizer.ok() || !returns_mean) return optimizer;
  optimizer->kind_ = OptimizerKind::kAssign;
  optimizer->slot_names_.clear();
  return optimizer;
}

void Optimizer::Update(int64_t update, double lr, const void* gradient,
                       float* parameters, absl::Span<float* const> slots,
                       int64_t num_elements) const {
  const auto* g = static_cast<const UnalignedFloat*>(gradient);
  const UpdateFactors f = Factors(update, lr);
  switch (kind_) {
    case OptimizerKind::kSgd:
      return SgdLoop(f.momentum, g, parameters, num_elements);
    case OptimizerKind::kMomentum:
      return MomentumLoop(f.momentum, g, parameters, slots[0], num_elements);
    case OptimizerKind::kNesterov:
      return NesterovLoop(f.momentum, g, parameters, slots[0], num_elements);
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return AdamLoop(f.adam, g, parameters, slots[0], slots[1], num_elements);
    case OptimizerKind::kAssign:
      std::memcpy(parameters, gradient, num_elements * sizeof(float));
      return;
  }
}

}  // namespace psring
