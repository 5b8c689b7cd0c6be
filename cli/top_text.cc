#include "cli/top_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cluster/process_names.h"
#include "common/format_loss.h"
#include "common/page/process_state.h"
#include "lab/page/format.h"
#include "lab/page/job_lines.h"
#include "lab/page/text_table.h"

namespace psring {
namespace {

constexpr size_t kMarks = 5;

std::string Seconds(double seconds) {
  return seconds >= 1 ? absl::StrFormat("%.2f s", seconds)
                      : absl::StrFormat("%.1f ms", seconds * 1e3);
}

std::string Head(const JobState& state) {
  const proto::JobView& view = state.view();
  const int64_t total = state.total_steps();
  if (view.state() == proto::JobView::FORMING) {
    return absl::StrCat(JobBlock(state)[0], "\n");
  }
  std::string text = JobTitle(state);
  if (view.state() == proto::JobView::OVER) {
    return absl::StrCat(text, ": ",
                        view.result().empty()
                            ? "has ended"
                            : absl::StrCat("has failed: ", view.result()),
                        "\n");
  }
  if (!state.now().has_value()) return absl::StrCat(text, "\n");
  const JobPoint& now = *state.now();
  absl::StrAppend(&text, ": step ", FormatCount(now.step));
  if (total > 0) {
    absl::StrAppend(&text, " of ", FormatCount(static_cast<double>(total)));
  }
  if (now.loss.has_value()) {
    absl::StrAppend(&text, ", loss ", FormatLoss(*now.loss));
  }
  if (now.samples_per_second > 0) {
    absl::StrAppend(&text, ", ", FormatCount(now.samples_per_second),
                    " samples/s");
  }
  absl::StrAppend(&text, "\n");
  if (!now.paced) return text;
  absl::StrAppend(&text, "a step: compute ", Seconds(now.compute_s),
                  ", exposed ", Seconds(now.exposed_s), ", waiting for others ",
                  Seconds(now.waiting_s));
  if (now.slowed_s > 0) {
    absl::StrAppend(&text, ", slowed (--slow) ", Seconds(now.slowed_s));
  }
  absl::StrAppend(&text, "\n");
  if (!state.straggler().who.empty()) {
    absl::StrAppend(&text, "the straggler: ", state.straggler().who, ", ",
                    absl::StrFormat("%.0f%%", 100 * state.straggler().share),
                    " of all waiting was for it\n");
  }
  return text;
}

std::string StateText(const proto::ProcessView& process) {
  const std::string doing = DoingOf(process);
  std::string text = StateOf(process);
  if (text == "works" && !doing.empty()) return doing;
  if (text == "waits" && process.waiting_ms() >= 1000) {
    absl::StrAppend(&text, " ", process.waiting_ms() / 1000, " s");
  }
  if (text == "silent") {
    absl::StrAppend(&text, " ", process.silent_ms() / 1000, " s");
  }
  return text;
}

std::string Table(const JobState& state) {
  std::vector<std::vector<std::string>> cells = {
      {"process", "host", "pid", "state", "step", "samples/s", "compute",
       "exchange", "sent", "received", "memory"}};
  const proto::JobView& view = state.view();
  for (int i = 0; i < view.processes_size(); ++i) {
    const proto::ProcessView& p = view.processes(i);
    const Pace& pace = state.paces()[i];
    const auto bytes = [](int64_t n) {
      return n > 0 ? FormatBytes(static_cast<double>(n)) : "";
    };
    cells.push_back(
        {NameAndRank(p.process()), p.process().host(),
         absl::StrCat(p.process().pid()), StateText(p),
         FormatCount(static_cast<double>(p.step())),
         pace.samples_per_second > 0 ? FormatCount(pace.samples_per_second)
                                     : "",
         pace.compute_s > 0 ? Seconds(pace.compute_s) : "",
         pace.exposed_s > 0 ? Seconds(pace.exposed_s) : "",
         bytes(p.figures().bytes_sent()), bytes(p.figures().bytes_received()),
         bytes(p.figures().resident_bytes())});
  }
  return TextTable(cells);
}

std::string Words(const JobState& state) {
  std::string text;
  for (const proto::ProcessView& p : state.view().processes()) {
    const std::string who = NameAndRank(p.process());
    if (!p.held_up_by().empty()) {
      absl::StrAppend(&text, who, " waits at ", p.waits_at(), " for ",
                      p.held_up_by(), "\n");
    } else if (!p.figures().last_word().empty()) {
      absl::StrAppend(&text, who, ": ", p.figures().last_word(), "\n");
    }
  }
  const auto& marks = state.marks();
  const size_t first = marks.size() > kMarks ? marks.size() - kMarks : 0;
  for (size_t i = first; i < marks.size(); ++i) {
    if (!marks[i].fault) continue;
    absl::StrAppend(&text, "fault, ", FormatClock(marks[i].seconds),
                    " after the first look: ", marks[i].text, "\n");
  }
  return text;
}

}  // namespace

std::string TopText(const JobState& state) {
  return absl::StrCat(Head(state), "\n", Table(state), "\n", Words(state));
}

}  // namespace psring
