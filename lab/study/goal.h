// What the runs of a comparison are judged by: how soon an evaluation's figure
// reaches a target. Pure.
#ifndef PSRING_LAB_STUDY_GOAL_H_
#define PSRING_LAB_STUDY_GOAL_H_

#include <optional>
#include <string>
#include <vector>

#include "lab/study/run_result.h"

namespace psring {

// An accuracy, or a loss, of which lower is better: of scripts that have no
// accuracy, or where the user says so.
enum class Score { kAccuracy, kTestLoss };

// What the user says of it.
struct Aim {
  // Nothing: see ScoreOf.
  std::optional<Score> score = std::nullopt;
  // Nothing: what the ways reach.
  std::optional<double> target = std::nullopt;
};

struct Goal {
  Score score = Score::kAccuracy;
  double target = 0;

  // NaN where it does not tell.
  double Of(const EpochSample& evaluation) const;
  double OfLast(const RunResult& run) const;
  // Of its evaluations, but for those before the first step; NaN where none
  // tells.
  double BestOf(const RunResult& run) const;
  // Nothing is better than NaN.
  bool IsBetter(double a, double b) const;
  // Whether the value is the target or better, to a millionth: a target of
  // three digits and a value in float32 are both rounded.
  bool IsReachedBy(double value) const;
  // When the first evaluation at the target or better was, but for those before
  // the first step; null if none was.
  const EpochSample* FirstAt(const RunResult& run) const;

  // "93.10%", "0.3125"; "-" of NaN.
  std::string Text(double value) const;
  // "93.10% accuracy", "a test loss of 0.3125".
  std::string TargetText() const;
  // "accuracy", "test loss".
  const char* name() const;
  // "accuracies", "test losses".
  const char* plural() const;
};

// The score that `aim` names, or else the one that all runs tell, an accuracy
// first; where none is, an accuracy if any run tells one.
Score ScoreOf(const Aim& aim, const std::vector<RunResult>& runs);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_GOAL_H_
