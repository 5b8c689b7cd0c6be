#include "common/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/optim/job_plan.h"
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

absl::Status CheckSgd(const proto::OptimizerSettings& s) {
  absl::Status status = CheckFraction("momentum", s.momentum());
  if (!status.ok() || s.momentum() == 0) return status;
  return Bad(absl::StrCat("sgd has no momentum, but momentum is ", s.momentum(),
                          "; use --optimizer=momentum"));
}

absl::Status CheckMomentum(const proto::OptimizerSettings& s) {
  absl::Status status = CheckFraction("momentum", s.momentum());
  if (!status.ok() || s.momentum() != 0) return status;
  return Bad(absl::StrCat("momentum must be in (0, 1) for ", s.name(),
                          ", not 0; without momentum use --optimizer=sgd"));
}

absl::Status CheckAdam(const proto::OptimizerSettings& s) {
  absl::Status status = CheckFraction("beta1", s.beta1());
  if (status.ok()) status = CheckFraction("beta2", s.beta2());
  if (!status.ok()) return status;
  if (s.epsilon() >= kSmallest && s.epsilon() <= kLargest) return status;
  return Bad(absl::StrCat("epsilon must be in [", kSmallest, ", ", kLargest,
                          "], not ", s.epsilon()));
}

OptimizerFormula SgdOf(const proto::OptimizerSettings& s, int64_t update,
                       double lr, double momentum) {
  return SgdFormula{.lr = static_cast<float>(lr),
                    .weight_decay = static_cast<float>(s.weight_decay())};
}

// The two with a momentum have the same scalars.
template <typename Formula>
OptimizerFormula WithMomentum(const proto::OptimizerSettings& s, int64_t update,
                              double lr, double momentum) {
  return Formula{.lr = static_cast<float>(lr),
                 .momentum = static_cast<float>(momentum),
                 .weight_decay = static_cast<float>(s.weight_decay())};
}

template <bool kDecoupled>
OptimizerFormula AdamOf(const proto::OptimizerSettings& s, int64_t update,
                        double lr, double beta1) {
  AdamFormula f;
  const double decay = s.weight_decay();
  f.keep = static_cast<float>(kDecoupled ? 1 - lr * decay : 1);
  f.weight_decay = static_cast<float>(kDecoupled ? 0 : decay);
  f.beta1 = static_cast<float>(beta1);
  f.one_minus_beta1 = static_cast<float>(1 - beta1);
  f.beta2 = static_cast<float>(s.beta2());
  f.one_minus_beta2 = static_cast<float>(1 - s.beta2());
  const double count = static_cast<double>(update);
  f.step_size = static_cast<float>(lr / (1 - std::pow(beta1, count)));
  const double correction2 = std::sqrt(1 - std::pow(s.beta2(), count));
  f.sqrt_bias_correction2 = static_cast<float>(correction2);
  f.epsilon = static_cast<float>(s.epsilon_hat() ? s.epsilon() / correction2
                                                 : s.epsilon());
  return f;
}

OptimizerFormula AssignOf(const proto::OptimizerSettings& s, int64_t update,
                          double lr, double momentum) {
  return AssignFormula();
}

struct Definition {
  const char* name;
  std::vector<std::string> slot_names;  // torch's, as many as the formula has
  // Of what is its own; lr and weight_decay are everyone's.
  absl::Status (*check)(const proto::OptimizerSettings& s);
  OptimizerFormula (*formula_of)(const proto::OptimizerSettings& s,
                                 int64_t update, double lr, double momentum);
};

std::vector<Definition> Definitions() {
  return {
      {"sgd", {}, CheckSgd, SgdOf},
      {"momentum",
       {"momentum_buffer"},
       CheckMomentum,
       WithMomentum<MomentumFormula>},
      {"nesterov",
       {"momentum_buffer"},
       CheckMomentum,
       WithMomentum<NesterovFormula>},
      {"adam", {"exp_avg", "exp_avg_sq"}, CheckAdam, AdamOf<false>},
      {"adamw", {"exp_avg", "exp_avg_sq"}, CheckAdam, AdamOf<true>},
  };
}

}  // namespace

bool IsAdam(absl::string_view name) {
  return name == "adam" || name == "adamw";
}

double MomentumOf(const proto::OptimizerSettings& settings) {
  return IsAdam(settings.name()) ? settings.beta1() : settings.momentum();
}

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
    absl::Status status = CheckRange("lr", s.lr());
    if (status.ok()) status = CheckRange("weight_decay", s.weight_decay());
    if (status.ok()) status = definition.check(s);
    if (!status.ok()) return status;
    Optimizer optimizer;
    optimizer.formula_of_ = definition.formula_of;
    optimizer.settings_ = s;
    optimizer.slot_names_ = definition.slot_names;
    return optimizer;
  }
  return Bad(absl::StrCat("unknown name \"", s.name(), "\"; choose ",
                          absl::StrJoin(OptimizerNames(), ", ")));
}

absl::StatusOr<Optimizer> Optimizer::ForMean(const proto::OptimizerSettings& s,
                                             bool returns_mean) {
  auto optimizer = Create(s);
  if (!optimizer.ok() || !returns_mean) return optimizer;
  optimizer->formula_of_ = AssignOf;
  optimizer->slot_names_.clear();
  return optimizer;
}

absl::StatusOr<Optimizer> Optimizer::ForJob(
    const proto::JobSpec& spec, const proto::OptimizerSettings& settings,
    const Layout& layout) {
  auto optimizer = ForMean(settings, ReturnsMean(spec));
  if (!optimizer.ok() || spec.groups().empty() || ReturnsMean(spec)) {
    return optimizer;
  }
  for (const proto::OptimizerSettings& group : spec.groups()) {
    if (absl::Status s = Create(group).status(); !s.ok()) return s;
    optimizer->groups_.push_back(group);
  }
  std::vector<Run>& runs = optimizer->runs_;
  for (int i = 0; i < spec.tensor_groups_size(); ++i) {
    const int group = spec.tensor_groups(i);
    if (runs.empty() || runs.back().group != group) runs.push_back({0, group});
    runs.back().end = i + 1 < spec.tensor_groups_size()
                          ? layout.tensor(i + 1).begin
                          : layout.num_elements();
  }
  return optimizer;
}

void Optimizer::Update(int64_t update, absl::Span<const double> rates,
                       const void* gradient, float* parameters,
                       absl::Span<float* const> slots, Range range) const {
  absl::InlinedVector<float*, 4> state(slots.begin(), slots.end());
  ForEachFormula(update, rates, range,
                 [&](const OptimizerFormula& formula, Range part) {
                   UpdateElements(formula, gradient, parameters, state.data(),
                                  part.size());
                   gradient = static_cast<const float*>(gradient) + part.size();
                   parameters += part.size();
                   for (float*& slot : state) slot += part.size();
                 });
}

void Optimizer::ForEachFormula(
    int64_t update, absl::Span<const double> rates, Range range,
    absl::FunctionRef<void(const OptimizerFormula&, Range)> apply) const {
  const size_t groups = std::max<size_t>(groups_.size(), 1);
  const bool has_momenta = rates.size() == 2 * groups;
  const auto formula = [&](const proto::OptimizerSettings& settings,
                           size_t group) {
    return formula_of_(
        settings, update, rates.size() == 1 ? rates[0] : rates[group],
        has_momenta ? rates[groups + group] : MomentumOf(settings));
  };
  if (runs_.empty()) return apply(formula(settings_, 0), range);
  auto run = std::upper_bound(
      runs_.begin(), runs_.end(), range.begin,
      [](int64_t element, const Run& r) { return element < r.end; });
  for (int64_t begin = range.begin; begin < range.end; ++run) {
    const int64_t end = std::min(run->end, range.end);
    apply(formula(groups_[run->group], run->group), {begin, end});
    begin = end;
  }
}

}  // namespace psring
