#include "ps/update_rule.h"

#include <algorithm>

#include "common/optim/fused_update.h"
#include "common/optim/rates.h"

namespace psring {

UpdateRule::UpdateRule(const proto::JobSpec& spec, int num_workers,
                       const Layout& layout, const PieceTable& pieces,
                       Shard& shard)
    : plan_(PlanOf(spec, num_workers)),
      num_learning_rates_(NumGroups(spec)),
      staleness_lr_(spec.staleness_lr()),
      lambda_(static_cast<float>(spec.delay_compensation())),
      layout_(layout),
      pieces_(pieces),
      shard_(shard),
      staleness_(num_workers) {
  // What a resumed run has applied before; see Optimizer::Update.
  const int64_t updates = ReturnsMean(spec) ? 0 : plan_.first_updates;
  versions_.resize(pieces.size(),
                   {updates, std::vector<int64_t>(num_workers, updates)});
}

void UpdateRule::OnRead(int piece, int worker) {
  versions_[piece].read[worker] = versions_[piece].updates;
  if (lambda_ > 0) shard_.TakeSnapshot(worker, pieces_[piece].range);
}

UpdateRule::Rates UpdateRule::RatesOf(int64_t step,
                                      const Contribution& contribution) const {
  if (contribution.rates.empty()) return {plan_.RateAt(step)};
  return {contribution.rates.begin(), contribution.rates.end()};
}

void UpdateRule::ApplyOne(int piece, int64_t step, Contribution contribution) {
  Versions& versions = versions_[piece];
  const int64_t stale = versions.updates - versions.read[contribution.worker];
  staleness_.Record(contribution.worker, stale);
  const int64_t update = ++versions.updates;
  Rates rates = RatesOf(step, contribution);
  if (staleness_lr_ && stale > 1) {
    const size_t end = std::min(rates.size(), num_learning_rates_);
    for (size_t i = 0; i < end; ++i) rates[i] /= static_cast<double>(stale);
  }
  const Range range = pieces_[piece].range;
  if (lambda_ > 0) {
    shard_.ApplyCompensated(range, contribution.gradient, contribution.worker,
                            lambda_, update, rates);
  } else {
    shard_.Apply(range, contribution.gradient, update, rates);
  }
}

void UpdateRule::ApplyMean(int piece, int64_t step,
                           absl::Span<const Contribution> contributions,
                           absl::Span<float* const> copies) {
  Versions& versions = versions_[piece];
  absl::InlinedVector<const void*, 16> gradients;
  int num_gradients = 0;
  for (const Contribution& contribution : contributions) {
    const int worker = contribution.worker;
    staleness_.Record(worker, versions.updates - versions.read[worker]);
    gradients.push_back(contribution.gradient);
    num_gradients += contribution.num_gradients;
  }
  const Range range = pieces_[piece].range;
  SumAndUpdate(shard_.optimizer(), layout_.bucket(pieces_[piece].bucket), range,
               gradients, 1.0f / static_cast<float>(num_gradients),
               ++versions.updates, RatesOf(step, contributions.front()),
               shard_.parameters(range.begin), shard_.SlotsAt(range.begin),
               copies);
}

}  // namespace psring
