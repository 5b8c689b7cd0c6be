// What a gradient does to a shard. It knows, of every piece, how many updates
// it has seen and how many of them each worker's parameters had in them; the
// difference is a gradient's staleness. One thread's own, as the shard is.
//
// Cures of staleness, in ssp and async:
//   --staleness-lr        the rate over the staleness, where that is above 1
//                         (staleness-aware async-SGD, Zhang et al. 2016)
//   --delay-compensation  the gradient is corrected by what has happened to the
//                         parameters since its worker read them (DC-ASGD with a
//                         constant lambda, Zheng et al. 2017)
#ifndef PSRING_PS_UPDATE_RULE_H_
#define PSRING_PS_UPDATE_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "common/optim/job_plan.h"
#include "protos/cluster.pb.h"
#include "ps/piece_table.h"
#include "ps/serving_stats.h"
#include "ps/shard.h"

namespace psring {

class UpdateRule {
 public:
  struct Contribution {
    int worker = 0;
    const void* gradient = nullptr;
    // Where the job takes them from its workers; otherwise the step's count.
    absl::Span<const double> rates = {};
    int num_gradients = 1;  // of workers, whose sum `gradient` is
  };

  // The references outlive the rule.
  UpdateRule(const proto::JobSpec& spec, int num_workers, const Layout& layout,
             const PieceTable& pieces, Shard& shard);

  // That worker gets the piece's parameters as they are now.
  void OnRead(int piece, int worker);

  // The gradient is an update of its own; cures apply.
  void ApplyOne(int piece, int64_t step, Contribution contribution);

  // The mean of these gradients, given in rank order, is one update at the
  // first one's rates: their canonical sum, as if nobody else were in the job,
  // over the workers whose gradients they hold.
  // The new parameters are written to every one of `copies` too.
  void ApplyMean(int piece, int64_t step,
                 absl::Span<const Contribution> contributions,
                 absl::Span<float* const> copies);

  const StalenessStats& staleness() const { return staleness_; }

 private:
  using Rates = absl::InlinedVector<double, 4>;

  // Of that gradient's update: learning rates, and momenta where the job takes
  // them from its workers.
  Rates RatesOf(int64_t step, const Contribution& contribution) const;

  struct Versions {
    int64_t updates = 0;        // applied so far
    std::vector<int64_t> read;  // of those, by worker: in what it was given
  };

  const JobPlan plan_;
  const size_t num_learning_rates_;
  const bool staleness_lr_;
  const float lambda_;  // of delay compensation; 0: none
  const Layout& layout_;
  const PieceTable& pieces_;
  Shard& shard_;
  std::vector<Versions> versions_;  // by piece
  StalenessStats staleness_;
};

}  // namespace psring

#endif  // PSRING_PS_UPDATE_RULE_H_
