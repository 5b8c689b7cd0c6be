#include "lab/study/printed_metric.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {
namespace {

// When the wall clock, which goes on while this process is stopped, showed so
// many seconds since 1970. `stopped`: for how long it was, since then.
Time AtWall(double seconds, absl::Duration stopped) {
  const absl::Duration ago =
      WallNow() - absl::UnixEpoch() - absl::Seconds(seconds);
  return Now() - (ago - stopped);
}

// How many steps had been made after so many seconds, between two that are
// known; 0: nothing is.
int64_t StepAt(const ProcessMetrics& process, double seconds) {
  const std::vector<StepSample>& known = process.progress;
  if (known.empty()) return 0;
  const auto after = std::find_if(
      known.begin(), known.end(),
      [&](const StepSample& sample) { return sample.seconds > seconds; });
  if (after == known.begin()) return 0;
  if (after == known.end()) return known.back().step;
  const StepSample& before = *(after - 1);
  const double part =
      (seconds - before.seconds) / (after->seconds - before.seconds);
  // Progress is told when a step begins: what is printed comes behind it.
  return before.step +
         static_cast<int64_t>(
             std::ceil(part * static_cast<double>(after->step - before.step)));
}

}  // namespace

absl::Status CheckMetric(const std::string& pattern) {
  try {
    const std::regex parsed(pattern);
    if (parsed.mark_count() >= 1) return absl::OkStatus();
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", pattern, "\" is no regular expression: ", error.what()));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", pattern,
                   "\" has no group: put parentheses around the "
                   "number, as in \"accuracy ([0-9.]+)\""));
}

PrintedMetric::PrintedMetric(const std::string& pattern, bool is_loss)
    : active_(!pattern.empty()),
      is_loss_(is_loss),
      pattern_(pattern),
      start_(Now()),
      stopped_before_(TimeStopped()) {}

void PrintedMetric::Take(absl::string_view line) {
  // Its search takes stack for every character.
  constexpr size_t kLongest = 4096;
  line = line.substr(line.size() > kLongest ? line.size() - kLongest : 0);
  std::cmatch match;
  try {
    if (!active_ ||
        !std::regex_search(line.begin(), line.end(), match, pattern_)) {
      return;
    }
  } catch (const std::regex_error&) {
    return;  // too complex for this line
  }
  double value = 0;
  // [0-9.]+ takes the full stop of a sentence, too, and \S+ what else is
  // behind the number.
  const std::string text = match[1].str();
  absl::string_view number = text;
  number = number.substr(0, number.find_last_not_of(".,;:)]") + 1);
  const bool with_percent = absl::ConsumeSuffix(&number, "%");
  if (!absl::SimpleAtod(number, &value)) return;
  const absl::string_view behind = absl::StripLeadingAsciiWhitespace(
      line.substr(match[1].second - line.begin()));
  samples_.push_back(
      {Now(), value, with_percent || absl::StartsWith(behind, "%")});
}

std::optional<bool> PrintedMetric::percent() const {
  if (!active_ || is_loss_) return std::nullopt;
  return std::any_of(samples_.begin(), samples_.end(),
                     [](const Sample& sample) {
                       return sample.value > 1 || sample.has_percent_sign;
                     });
}

void PrintedMetric::AddTo(std::vector<ProcessMetrics>& all) const {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  for (ProcessMetrics& process : all) {
    if (process.role != "worker" || process.rank != 0 || !active_) continue;
    process.epochs.clear();
    const Time start =
        process.started_s > 0
            ? AtWall(process.started_s, TimeStopped() - stopped_before_)
            : start_;
    for (const Sample& sample : samples_) {
      EpochSample& epoch = process.epochs.emplace_back();
      epoch.epoch = static_cast<int64_t>(process.epochs.size());
      epoch.seconds = absl::ToDoubleSeconds(sample.when - start);
      epoch.step = StepAt(process, epoch.seconds);
      epoch.train_loss = kUnknown;
      epoch.test_loss = is_loss_ ? sample.value : kUnknown;
      epoch.test_accuracy =
          is_loss_ ? kUnknown : sample.value / (*percent() ? 100 : 1);
      epoch.images_per_second = kUnknown;
      (is_loss_ ? process.infinite_loss : process.infinite_accuracy) =
          !std::isfinite(sample.value);
    }
  }
}

}  // namespace psring
