// A number that a program prints now and then, found by a regular expression:
// the measure of a script that tells psring nothing.
#ifndef PSRING_LAB_STUDY_PRINTED_METRIC_H_
#define PSRING_LAB_STUDY_PRINTED_METRIC_H_

#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"
#include "common/trace/metrics_reader.h"

namespace psring {

// INVALID_ARGUMENT: no regular expression (ECMAScript's), or one without a
// group in parentheses, which is the number.
absl::Status CheckMetric(const std::string& pattern);

class PrintedMetric {
 public:
  // An empty pattern takes nothing; others have been checked. `is_loss`: the
  // numbers are losses, else accuracies.
  PrintedMetric(const std::string& pattern, bool is_loss);

  // A line of worker 0's output, as it comes.
  void Take(absl::string_view line);

  // Whether one of the accuracies is above 1 or has a "%" behind it, so that
  // all are percent: others up to 1 are fractions. Nothing without a pattern,
  // and of losses.
  std::optional<bool> percent() const;

  // Every number that was taken becomes one of worker 0's epochs, as its test
  // loss, or its test accuracy, a hundredth where they are percent. Their
  // seconds count from the start that its metrics tell, as those do that a
  // script logs; their step is that of the progress that its metrics tell, 0
  // where they tell none.
  void AddTo(std::vector<ProcessMetrics>& all) const;

 private:
  struct Sample {
    Time when;
    double value;
    bool has_percent_sign;
  };

  const bool active_;
  const bool is_loss_;
  const std::regex pattern_;
  const Time start_;
  const absl::Duration stopped_before_;
  std::vector<Sample> samples_;
};

}  // namespace psring

#endif  // PSRING_LAB_STUDY_PRINTED_METRIC_H_
