#include "lab/page/job_lines.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/counted.h"
#include "common/format_loss.h"
#include "lab/host/terminal.h"
#include "lab/page/format.h"

namespace psring {
namespace {

constexpr int kBarWidth = 12;  // most of a line fits 80 columns

// At which the job's step grows. A late backup worker leaves steps out, and the
// fastest one makes all of them.
double StepsPerSecond(const JobState& state) {
  double steps = state.now()->steps_per_second;
  if (state.sync() != "bsp") return steps;
  for (const Pace& pace : state.paces()) {
    steps = std::max(steps, pace.steps_per_second);
  }
  return steps;
}

// How far a job that trains is, part by part.
std::vector<std::string> Parts(const JobState& state) {
  const JobPoint& now = *state.now();
  const auto total = static_cast<double>(state.total_steps());
  const double steps = StepsPerSecond(state);
  std::vector<std::string> parts = {
      absl::StrCat("step ", FormatCount(now.step))};
  if (total > 0) absl::StrAppend(&parts[0], " of ", FormatCount(total));
  if (now.loss.has_value()) {
    parts.push_back(absl::StrCat("loss ", FormatLoss(*now.loss)));
  }
  if (total > 0 && steps > 0) {
    const double left = std::max(0.0, total - now.step) / steps;
    parts.push_back(absl::StrCat(FormatClock(left), " left"));
  }
  if (now.samples_per_second > 0) {
    parts.push_back(
        absl::StrCat(FormatCount(now.samples_per_second), " samples/s"));
  } else if (steps > 0) {
    parts.push_back(absl::StrFormat("%.3g steps/s", steps));
  }
  return parts;
}

bool Trains(const JobState& state) {
  return state.view().state() == proto::JobView::RUNNING &&
         state.now().has_value() && state.now()->step > 0;
}

}  // namespace

std::string JobTitle(const JobState& state) {
  const proto::JobView& view = state.view();
  const std::string workers = Counted(view.num_workers(), "worker");
  if (view.mode() == proto::RING) return absl::StrCat("ring, ", workers);
  const std::string sync = state.sync();
  return absl::StrCat("ps", sync.empty() ? "" : "-", sync, ", ", workers, ", ",
                      Counted(view.num_servers(), "server"));
}

std::vector<std::string> SlowestLine(const JobState& state) {
  const std::string& who = state.straggler().who;
  if (who.empty()) return {};
  return {absl::StrCat("the slowest: ", who)};
}

std::vector<std::string> JobBlock(const JobState& state) {
  const proto::JobView& view = state.view();
  const std::string title = JobTitle(state);
  if (view.state() == proto::JobView::FORMING) {
    return {absl::StrCat(title, ": waits for processes to join, ",
                         view.processes_size(), " of ",
                         view.num_servers() + view.num_workers(), " have")};
  }
  if (view.state() == proto::JobView::OVER) return {};
  if (!Trains(state)) return {absl::StrCat(title, ": starts")};
  std::string bar;
  if (const int64_t total = state.total_steps(); total > 0) {
    bar = absl::StrCat(
        ProgressBar(state.now()->step / static_cast<double>(total), kBarWidth),
        " ");
  }
  std::vector<std::string> job = SlowestLine(state);
  job.insert(job.begin(), title);
  return {absl::StrCat(bar, absl::StrJoin(Parts(state), "  ")),
          absl::StrJoin(job, "; ")};
}

std::vector<std::string> JobLine(const JobState& state) {
  if (!Trains(state)) return {};
  std::vector<std::string> parts = Parts(state);
  for (std::string& line : SlowestLine(state)) parts.push_back(std::move(line));
  return {absl::StrJoin(parts, ", ")};
}

}  // namespace psring
