#include "lab/page/timeline_text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lab/page/text_table.h"

namespace psring {
namespace {

using Cells = std::vector<std::vector<std::string>>;

// By which clocks may be apart, where others' times are held against a
// worker's.
constexpr double kMuchOfAStep = 0.25;

std::string Milliseconds(double seconds, int64_t steps) {
  return absl::StrFormat(
      "%.2f", seconds * 1e3 / static_cast<double>(std::max<int64_t>(steps, 1)));
}

std::string Percent(double part, double whole) {
  return absl::StrFormat("%.1f%%", whole > 0 ? 100 * part / whole : 0.0);
}

struct Column {
  std::string title;
  double seconds;
};

std::vector<Column> ColumnsOf(const WorkerTimes& t, bool encodes) {
  std::vector<Column> columns = {{"step", t.whole},
                                 {"data", t.data},
                                 {"forward", t.forward},
                                 {"backward", t.backward}};
  if (encodes) columns.push_back({"encoding", t.encode});
  columns.insert(columns.end(), {{"injected", t.slow},
                                 {"exposed", t.exposed},
                                 {"waiting", t.waiting},
                                 {"other", t.other()}});
  return columns;
}

std::string TimesText(const Explanation& explanation) {
  const WorkerTimes& total = explanation.total;
  const bool encodes = total.encode > 0;
  Cells cells = {{"ms a step", "steps"}};
  std::vector<std::string> shares = {"share", ""};
  for (const Column& column : ColumnsOf(total, encodes)) {
    cells[0].push_back(column.title);
    shares.push_back(Percent(column.seconds, total.whole));
  }
  const auto add_row = [&](const std::string& name, const WorkerTimes& times) {
    cells.push_back({name, absl::StrCat(times.steps)});
    for (const Column& column : ColumnsOf(times, encodes)) {
      cells.back().push_back(Milliseconds(column.seconds, times.steps));
    }
  };
  for (size_t w = 0; w < explanation.workers.size(); ++w) {
    add_row(absl::StrCat("worker ", w), explanation.workers[w]);
  }
  add_row("all workers", total);
  cells.push_back(shares);
  return absl::StrCat(
      TextTable(cells),
      encodes ? "encoding: by --compress, on the trainer's thread. " : "",
      "injected: by --slow. exposed: communication that no computation hides. "
      "waiting: for a\nworker that came later. other: clipping, the loop "
      "itself.\n");
}

std::string HeldUpText(const std::string& title,
                       const std::vector<HeldUp>& held_up, double whole) {
  if (held_up.empty()) return "";
  Cells cells = {{title, "steps", "seconds", "of all step time"}};
  for (const HeldUp& held : held_up) {
    cells.push_back({held.who, absl::StrCat(held.steps),
                     absl::StrFormat("%.3f", held.seconds),
                     Percent(held.seconds, whole)});
  }
  return absl::StrCat("\n", TextTable(cells));
}

// In ssp and async the fast workers wait there, and not within a step.
std::string CatchUpText(const Explanation& explanation) {
  if (explanation.total.catch_up <= 0) return "";
  Cells cells = {{"before evaluations", "seconds", "in steps"}};
  for (size_t w = 0; w < explanation.workers.size(); ++w) {
    const WorkerTimes& times = explanation.workers[w];
    cells.push_back({absl::StrCat("worker ", w),
                     absl::StrFormat("%.3f", times.catch_up),
                     absl::StrFormat("%.3f", times.whole)});
  }
  return absl::StrCat(
      "\n", TextTable(cells),
      "Before an evaluation, every worker waits until all have made their "
      "steps. This time lies\nbeside the steps; the metrics' exposed counts "
      "it.\n");
}

}  // namespace

std::string ExplanationText(const Explanation& explanation) {
  const double whole = explanation.total.whole;
  return absl::StrCat(
      TimesText(explanation), HeldUpText("waited for", explanation.late, whole),
      HeldUpText("answered last, of exposed", explanation.servers, whole),
      CatchUpText(explanation));
}

std::string DoubtsText(const std::vector<TraceInfo>& processes,
                       double step_seconds) {
  std::string text;
  int64_t worst = 0;
  for (const TraceInfo& process : processes) {
    for (const ClockReading& reading : process.clock) {
      worst = std::max(worst, reading.round_trip_ns);
    }
    for (const std::string& note : process.notes) {
      absl::StrAppend(&text, process.path, ": ", note, "\n");
    }
    if (process.clock.empty()) {
      absl::StrAppend(
          &text, process.path,
          ": its clock is not aligned, the process ended too early\n");
    }
  }
  const double apart = static_cast<double>(worst) / 2 * 1e-9;
  absl::StrAppendFormat(&text,
                        "clocks agree with the coordinator's within %.3f ms\n",
                        apart * 1e3);
  if (step_seconds > 0 && apart > kMuchOfAStep * step_seconds) {
    absl::StrAppendFormat(
        &text,
        "Beside a step of %.2f ms that is much: who was waited for, and what "
        "is "
        "exposed and\nwhat waiting, is uncertain. Messages that a busy host "
        "holds up are the usual cause.\n",
        step_seconds * 1e3);
  }
  return text;
}

}  // namespace psring
