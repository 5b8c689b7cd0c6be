#include "lab/study/contrast.h"

#include <algorithm>
#include <cmath>

#include "lab/host/other_load.h"
#include "lab/host/statistics.h"

namespace psring {
namespace {

// Figures of several seeds that differ by a smaller part are not told apart.
constexpr double kMargin = 0.05;
// The same of one seed each. The times of a machine that does other work, too,
// scatter by about a tenth from run to run: two that should be the same differ
// by more than this in about one of seventy cases.
constexpr double kOneSeedMargin = 0.3;
// How often chance may pass for a difference.
constexpr double kChance = 0.05;

bool HaveOneSeed(const Variant& a, const Variant& b) {
  return a.runs.size() == 1 && b.runs.size() == 1;
}

// Of variants that have more than one seed each, or one of them has. Tied says
// how.
bool MayBeChance(const Rated& a, const Rated& b, size_t num_compared) {
  if (Meet(a.spread, b.spread)) return true;
  const auto runs_a = static_cast<double>(a.variant->runs.size());
  const auto runs_b = static_cast<double>(b.variant->runs.size());
  const double degrees_of_freedom = runs_a + runs_b - 2;
  const double variance =
      ((runs_a - 1) * a.spread.variance + (runs_b - 1) * b.spread.variance) /
      degrees_of_freedom;
  const double t = StudentsT(kChance / static_cast<double>(num_compared),
                             static_cast<int>(degrees_of_freedom));
  return std::abs(a.spread.mean - b.spread.mean) <=
         t * std::sqrt(variance * (1 / runs_a + 1 / runs_b));
}

}  // namespace

bool Tied(const Rated& a, const Rated& b, size_t num_compared) {
  const bool one = HaveOneSeed(*a.variant, *b.variant);
  if (!one && MayBeChance(a, b, num_compared)) return true;
  const double larger = std::max(a.spread.mean, b.spread.mean);
  return std::abs(a.spread.mean - b.spread.mean) <=
         (one ? kOneSeedMargin : kMargin) * larger;
}

bool HeldUp(const RunResult& run) {
  return run.other_cores.value_or(0) > kMuchOtherLoad;
}

bool HeldUp(const Variant& variant) {
  return std::any_of(variant.runs.begin(), variant.runs.end(),
                     [](const RunResult& run) { return HeldUp(run); });
}

Ranking RankBySeconds(const Comparison& comparison, const Group& group) {
  Ranking ranking;
  for (const Variant* variant : group.variants) {
    if (const auto seconds = SecondsToTarget(comparison, *variant)) {
      ranking.reached.push_back({variant, *seconds});
    } else {
      ranking.unreached.push_back(variant);
    }
  }
  std::sort(ranking.reached.begin(), ranking.reached.end(),
            [](const Rated& a, const Rated& b) {
              return a.spread.mean < b.spread.mean;
            });
  return ranking;
}

const Variant* BaseOf(const Comparison& comparison, const Variant& variant,
                      const std::string& axis) {
  const std::string& first = comparison.values[AxisIndex(axis)][0];
  if (ValueOf(variant.point, axis) == first) return nullptr;
  for (const Variant& base : comparison.variants) {
    if (ValueOf(base.point, axis) == first &&
        SameBut(base.point, variant.point, axis)) {
      return &base;
    }
  }
  return nullptr;
}

std::optional<Ratio> SecondsRatio(const Comparison& comparison,
                                  const Variant& base, const Variant& other,
                                  size_t num_compared) {
  const Group pair = WithSharedSeeds(comparison, {"", {&base, &other}});
  const auto before = SecondsToTarget(comparison, *pair.variants[0]);
  const auto now = SecondsToTarget(comparison, *pair.variants[1]);
  if (!before || !now || before->mean <= 0) return std::nullopt;
  return Ratio{now->mean / before->mean,
               Tied({pair.variants[0], *before}, {pair.variants[1], *now},
                    num_compared)};
}

std::vector<StepContrast> ContrastSteps(const Comparison& comparison,
                                        const Group& group) {
  std::vector<StepContrast> contrasts;
  const Variant& base = *group.variants[0];
  const auto base_steps = StepsToTarget(comparison, base);
  const auto base_time = StepSecondsToTarget(comparison, base);
  if (!base_steps || base_time->mean <= 0) return contrasts;
  const size_t num_compared = group.variants.size() - 1;
  for (size_t i = 1; i < group.variants.size(); ++i) {
    const Variant& other = *group.variants[i];
    const auto steps = StepsToTarget(comparison, other);
    const auto time = StepSecondsToTarget(comparison, other);
    if (!steps || time->mean <= 0) continue;
    const bool as_many =
        HaveOneSeed(base, other)
            ? base_steps->mean == steps->mean
            : MayBeChance({&base, *base_steps}, {&other, *steps}, num_compared);
    contrasts.push_back(
        {&other,
         {base_time->mean / time->mean,
          Tied({&base, *base_time}, {&other, *time}, num_compared)},
         {steps->mean / base_steps->mean, as_many}});
  }
  return contrasts;
}

std::vector<Rated> RankByEnd(const Goal& goal, const Group& group) {
  std::vector<Rated> ends;
  for (const Variant* variant : group.variants) {
    ends.push_back({variant, SpreadOf(*variant, [&](const RunResult& run) {
                      return goal.OfLast(run);
                    })});
  }
  std::stable_sort(ends.begin(), ends.end(),
                   [&](const Rated& a, const Rated& b) {
                     return goal.IsBetter(a.spread.mean, b.spread.mean);
                   });
  return ends;
}

std::optional<PredictionErrors> ErrorsOfPredictions(
    const Comparison& comparison) {
  PredictionErrors errors;
  std::vector<double> all;
  for (const Variant& variant : comparison.variants) {
    const auto prediction = PredictionOf(variant);
    if (!prediction) continue;
    all.push_back(std::abs(prediction->error()));
    if (all.size() > 1 && all.back() < errors.worst) continue;
    errors.worst = all.back();
    errors.worst_label = variant.label;
  }
  if (all.empty()) return std::nullopt;
  errors.count = all.size();
  errors.median = Median(all);
  return errors;
}

}  // namespace psring
