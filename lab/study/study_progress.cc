#include "lab/study/study_progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lab/page/format.h"

namespace psring {

size_t NumFinished(const std::vector<std::optional<RunResult>>& runs) {
  return std::count_if(runs.begin(), runs.end(),
                       [](const auto& run) { return run.has_value(); });
}

std::string RunLabel(const Point& point) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < Axes().size(); ++i) {
    if (point[i] == kNone || point[i] == kAny) continue;
    parts.push_back(ValueLabel(Axes()[i], point[i]));
  }
  return absl::StrJoin(parts, ", ");
}

std::string RunTitle(const Point& point, size_t index, size_t num_runs) {
  return absl::StrCat("run ", index + 1, " of ", num_runs, ": ",
                      RunLabel(point));
}

std::string RunLine(const Point& point, size_t index,
                    const std::vector<std::optional<RunResult>>& runs) {
  std::string line = RunTitle(point, index, runs.size());
  const size_t finished = NumFinished(runs);
  if (finished == 0) return line;
  double seconds = 0;
  for (const auto& run : runs) seconds += run ? run->wall_seconds : 0;
  const double each = seconds / static_cast<double>(finished);
  // What lacks a result before it has failed.
  const auto left =
      std::count_if(runs.begin() + static_cast<int64_t>(index), runs.end(),
                    [](const auto& run) { return !run; });
  return absl::StrCat(line, ", about ",
                      FormatClock(each * static_cast<double>(left)), " left");
}

}  // namespace psring
