#include "lab/study/goal.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lab/page/format.h"

namespace psring {

double Goal::Of(const EpochSample& evaluation) const {
  return score == Score::kAccuracy ? evaluation.test_accuracy
                                   : evaluation.test_loss;
}

double Goal::OfLast(const RunResult& run) const {
  return score == Score::kAccuracy ? run.test_accuracy : run.test_loss;
}

double Goal::BestOf(const RunResult& run) const {
  double best = std::nan("");
  for (const EpochSample& evaluation : run.epochs) {
    if (IsBetter(Of(evaluation), best)) best = Of(evaluation);
  }
  return best;
}

bool Goal::IsBetter(double a, double b) const {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a);
  return score == Score::kAccuracy ? a > b : a < b;
}

bool Goal::IsReachedBy(double value) const {
  constexpr double kHair = 1e-6;
  return score == Score::kAccuracy ? value >= target - kHair
                                   : value <= target + kHair * std::abs(target);
}

const EpochSample* Goal::FirstAt(const RunResult& run) const {
  for (const EpochSample& evaluation : run.epochs) {
    if (IsReachedBy(Of(evaluation))) return &evaluation;
  }
  return nullptr;
}

std::string Goal::Text(double value) const {
  if (std::isnan(value)) return "-";
  return score == Score::kAccuracy ? FormatPercent(value)
                                   : absl::StrFormat("%.4g", value);
}

std::string Goal::TargetText() const {
  return score == Score::kAccuracy
             ? absl::StrCat(Text(target), " accuracy")
             : absl::StrCat("a test loss of ", Text(target));
}

const char* Goal::plural() const {
  return score == Score::kAccuracy ? "accuracies" : "test losses";
}

Score ScoreOf(const Aim& aim, const std::vector<RunResult>& runs) {
  if (aim.score.has_value()) return *aim.score;
  const Goal accuracy = {Score::kAccuracy, 0};
  const bool any = std::any_of(
      runs.begin(), runs.end(),
      [&](const RunResult& run) { return !std::isnan(accuracy.BestOf(run)); });
  return any || runs.empty() ? Score::kAccuracy : Score::kTestLoss;
}

}  // namespace psring
