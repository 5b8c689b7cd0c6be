// How the variants of a comparison differ, as numbers: statistics that
// verdict.h puts into sentences. Pure. Variants are the comparison's, which
// must outlive what points to them.
#ifndef PSRING_LAB_STUDY_CONTRAST_H_
#define PSRING_LAB_STUDY_CONTRAST_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lab/study/comparison.h"

namespace psring {

// A variant beside the figure that it is judged by.
struct Rated {
  const Variant* variant = nullptr;
  Spread spread;
};

// Whether the seeds cannot tell the two apart: their ranges meet, or their
// means differ by less than 5% or by no more than chance explains. Chance is
// Student's t-test (The Probable Error of a Mean, 1908) with the variance of
// both, at 5% over all `num_compared` ways that are compared with the same one
// (Bonferroni). Where that is the fastest, chosen by the same figures,
// identical ways are told apart in 5 to 9% of studies of up to eight. Where
// both have one seed, nobody knows how far seeds scatter, and they are tied
// below 30%.
bool Tied(const Rated& a, const Rated& b, size_t num_compared);

// Whether other programs' work has lengthened one of its runs.
bool HeldUp(const Variant& variant);
bool HeldUp(const RunResult& run);

// A figure over another one.
struct Ratio {
  double times = 1;
  bool tied = false;
};

// Who of a group reaches the target, and when.
struct Ranking {
  std::vector<Rated> reached;             // with every seed, the fastest first
  std::vector<const Variant*> unreached;  // not with every seed
};
Ranking RankBySeconds(const Comparison& comparison, const Group& group);

// The variant that differs from `variant` only in having the axis's first
// value; null where there is none or it is `variant` itself.
const Variant* BaseOf(const Comparison& comparison, const Variant& variant,
                      const std::string& axis);

// The seconds to the target of `other` over those of `base`, with the seeds
// that both have; nothing unless both reach it with every seed. `num_compared`:
// as Tied's.
std::optional<Ratio> SecondsRatio(const Comparison& comparison,
                                  const Variant& base, const Variant& other,
                                  size_t num_compared);

// What makes up the time to the target: how fast steps are, and how many it
// takes, beside the group's first variant.
struct StepContrast {
  const Variant* variant = nullptr;
  Ratio speed;  // the first one's seconds of a step over this one's
  Ratio steps;  // this one's steps to the target over the first one's
};
// For the variants that reach the target with every seed; empty unless the
// first one does.
std::vector<StepContrast> ContrastSteps(const Comparison& comparison,
                                        const Group& group);

// How the variants of a group end, by the comparison's goal, the best first.
// Those of which a run does not tell come last.
std::vector<Rated> RankByEnd(const Goal& goal, const Group& group);

// How far the predictor is off, as parts of the measured step.
struct PredictionErrors {
  size_t count = 0;
  double median = 0;
  double worst = 0;
  std::string worst_label;  // of the variant
};
// Nothing where no variant has a prediction.
std::optional<PredictionErrors> ErrorsOfPredictions(
    const Comparison& comparison);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_CONTRAST_H_
