#include "lab/study/goal.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lab/page/format.h"

namespace psring {
namespace {

// Those that training has led to: a script may evaluate its first weights, too.
// All where no step is known, which is then 0.
std::span<const EpochSample> Trained(const RunResult& run) {
  const auto first = std::find_if(
      run.epochs.begin(), run.epochs.end(),
      [](const EpochSample& evaluation) { return evaluation.step > 0; });
  return first == run.epochs.end()
             ? std::span<const EpochSample>(run.epochs)
             : std::span<const EpochSample>(first, run.epochs.end());
}

}  // namespace

double Goal::Of(const EpochSample& evaluation) const {
  return score == Score::kAccuracy ? evaluation.test_accuracy
                                   : evaluation.test_loss;
}

double Goal::OfLast(const RunResult& run) const {
  return score == Score::kAccuracy ? run.test_accuracy : run.test_loss;
}

double Goal::BestOf(const RunResult& run) const {
  double best = std::nan("");
  for (const EpochSample& evaluation : Trained(run)) {
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
  for (const EpochSample& evaluation : Trained(run)) {
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

const char* Goal::name() const {
  return score == Score::kAccuracy ? "accuracy" : "test loss";
}

const char* Goal::plural() const {
  return score == Score::kAccuracy ? "accuracies" : "test losses";
}

Score ScoreOf(const Aim& aim, const std::vector<RunResult>& runs) {
  if (aim.score.has_value()) return *aim.score;
  const auto tell = [&runs](Score score) {
    const Goal goal = {score, 0};
    return std::count_if(runs.begin(), runs.end(), [&](const RunResult& run) {
      return !std::isnan(goal.BestOf(run));
    });
  };
  const auto all = static_cast<int64_t>(runs.size());
  if (tell(Score::kAccuracy) == all) return Score::kAccuracy;
  if (tell(Score::kTestLoss) == all) return Score::kTestLoss;
  return tell(Score::kAccuracy) > 0 ? Score::kAccuracy : Score::kTestLoss;
}

}  // namespace psring
