// The optimizers that both topologies share, over flat float32 spans.
//
// Every formula is elementwise, so any cut of the model into ranges (servers,
// threads) gives the same bits. Definitions are torch.optim's of the same name:
//   sgd       g += wd*p;  p -= lr*g
//   momentum  g += wd*p;  b = mu*b + g;  p -= lr*b         (Polyak 1964)
//   nesterov  g += wd*p;  b = mu*b + g;  p -= lr*(g + mu*b)  (Sutskever 2013)
//   adam      g += wd*p;  Kingma & Ba 2015, bias-corrected
//   adamw     p -= lr*wd*p; then adam without weight decay (Loshchilov 2019)
// With epsilon_hat adam and adamw add epsilon to the root of the second moment
// before its bias is corrected, as Keras does and Kingma & Ba at the end of
// their section 2.
#ifndef PSRING_COMMON_OPTIM_OPTIMIZER_H_
#define PSRING_COMMON_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "common/optim/optimizer_formulas.h"
#include "protos/cluster.pb.h"

namespace psring {

// Whether it is adam or adamw, which have betas in place of a momentum.
bool IsAdam(absl::string_view name);

// beta1 of adam and adamw; of the others, momentum.
double MomentumOf(const proto::OptimizerSettings& settings);

// Every optimizer's name, as --optimizer takes it.
std::vector<std::string> OptimizerNames();

// Immutable; callable from any thread.
class Optimizer {
 public:
  // Errors: an unknown name; a setting out of its range, named with the range.
  static absl::StatusOr<Optimizer> Create(const proto::OptimizerSettings& s);

  // What an exchange applies to the mean of what all workers bring: the same,
  // or, where it returns that mean (ReturnsMean in job_plan.h), an assignment
  // without state, whatever the rate.
  static absl::StatusOr<Optimizer> ForMean(const proto::OptimizerSettings& s,
                                           bool returns_mean);

  // The same of a job, with hyperparameters by group of tensors where it has
  // groups; CheckPolicies has found them right. `settings`: of a job without.
  static absl::StatusOr<Optimizer> ForJob(
      const proto::JobSpec& spec, const proto::OptimizerSettings& settings,
      const Layout& layout);

  // torch's names of the state kept per parameter, e.g. {"momentum_buffer"}.
  // Each is a span as large as the parameters, zero at the start.
  const std::vector<std::string>& slot_names() const { return slot_names_; }
  int num_slots() const { return static_cast<int>(slot_names_.size()); }

  // Applies one gradient to num_elements parameters. `update` counts the
  // updates of these elements from 1 (adam's bias correction); `lr` is this
  // update's learning rate; slots[i] is the i-th slot's run of num_elements.
  // `gradient` is left as it is and may be the only unaligned pointer.
  void Update(int64_t update, double lr, const void* gradient,
              float* parameters, absl::Span<float* const> slots,
              int64_t num_elements) const {
    Update(update, {&lr, 1}, gradient, parameters, slots, {0, num_elements});
  }
  // The same of the elements `range` of the flat model, each by its group.
  // `rates`: the learning rate of each group, or one for all; with one more of
  // each group, those are its momentum (common/optim/rates.h).
  void Update(int64_t update, absl::Span<const double> rates,
              const void* gradient, float* parameters,
              absl::Span<float* const> slots, Range range) const;

  // The same update as formulas: calls `apply` for each part of `range`, in
  // order, whose elements have one formula.
  void ForEachFormula(
      int64_t update, absl::Span<const double> rates, Range range,
      absl::FunctionRef<void(const OptimizerFormula&, Range)> apply) const;

  // That update, as a formula for one element.
  OptimizerFormula FormulaOf(int64_t update, double lr) const {
    return formula_of_(settings_, update, lr, MomentumOf(settings_));
  }

  const proto::OptimizerSettings& settings() const { return settings_; }

 private:
  Optimizer() = default;

  OptimizerFormula (*formula_of_)(const proto::OptimizerSettings& s,
                                  int64_t update, double lr,
                                  double momentum) = nullptr;
  proto::OptimizerSettings settings_;
  // Of a job with groups: the settings of each, and which one the elements up
  // to `end` belong to. Gaps belong to the tensor before them.
  struct Run {
    int64_t end = 0;
    int group = 0;
  };
  std::vector<proto::OptimizerSettings> groups_;
  std::vector<Run> runs_;
  std::vector<std::string> slot_names_;
};

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_OPTIMIZER_H_
