#include "cli/timeline.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/trace/step_times.h"
#include "common/trace/trace_merge.h"
#include "common/trace/trace_reader.h"
#include "lab/page/text_table.h"

namespace psring {
namespace {

using nlohmann::json;
using Cells = std::vector<std::vector<std::string>>;

constexpr char kDescription[] =
    "Shows what a job's processes did when, from the folder that --timeline "
    "gave them. After a run on several hosts, copy all files into one folder.";

constexpr char kExample[] =
    "Example:\n"
    "  psring launch --workers=2 --timeline=trace -- --steps=200\n"
    "  psring timeline explain trace\n"
    "  psring timeline merge trace     # then open trace/timeline.json in\n"
    "                                  # ui.perfetto.dev or chrome://tracing";

// A span of a worker that says where a step's time went.
void TakeSpan(const json& event, WorkerSteps& steps) {
  const json& args = event.at("args");
  if (event.at("ph") != "X" || !args.contains("step")) return;
  const std::string name = event.at("name");
  WorkerStep& step = steps[args["step"].get<int64_t>()];
  const int64_t ns = std::max<int64_t>(
      static_cast<int64_t>(event.at("dur").get<double>() * 1000), 1);
  if (name == "step") step.whole = ns;
  if (name == "data") step.data = ns;
  if (name == "forward") step.forward = ns;
  if (name == "encode") step.encode += ns;
  // Buckets that were encoded before it ended were encoded in it.
  if (name == "backward") step.backward = ns - step.encode;
  if (name == "device") step.device = ns;
  if (name == "slow") step.slow = ns;
  if (name == "wait") {
    // By its own clock until that is known.
    step.arrived = static_cast<int64_t>(event.at("ts").get<double>() * 1000);
    step.went_on = step.arrived + ns;
  }
  if (name == "await" && args.contains("peer")) {
    absl::string_view peer = args["peer"].get_ref<const std::string&>();
    if (absl::ConsumePrefix(&peer, "ps ")) {
      int rank = -1;
      if (absl::SimpleAtoi(peer, &rank)) step.last_server = rank;
    }
  }
}

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

void PrintTimes(const Explanation& explanation) {
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
  std::cout << TextTable(cells)
            << (encodes ? "encoding: by --compress, on the trainer's thread. "
                        : "")
            << "injected: by --slow. exposed: communication that no "
               "computation hides. waiting: for a\nworker that came later. "
               "other: clipping, the loop itself.\n";
}

void PrintHeldUp(const std::string& title, const std::vector<HeldUp>& held_up,
                 double whole) {
  if (held_up.empty()) return;
  Cells cells = {{title, "steps", "seconds", "of all step time"}};
  for (const HeldUp& held : held_up) {
    cells.push_back({held.who, absl::StrCat(held.steps),
                     absl::StrFormat("%.3f", held.seconds),
                     Percent(held.seconds, whole)});
  }
  std::cout << "\n" << TextTable(cells);
}

// What makes the picture incomplete or the clocks doubtful.
void PrintDoubts(const std::vector<TraceInfo>& infos) {
  int64_t worst = 0;
  for (const TraceInfo& info : infos) {
    worst = std::max(worst, info.round_trip_ns);
    for (const std::string& note : info.notes) {
      std::cout << info.path << ": " << note << "\n";
    }
    if (!info.ahead_ns.has_value()) {
      std::cout << info.path
                << ": its clock is not aligned, the process ended too early\n";
    }
  }
  std::cout << "clocks agree with the coordinator's within "
            << absl::StrFormat("%.3f ms\n", worst / 2 * 1e-6);
}

absl::Status PrintExplanation(const std::string& directory) {
  std::vector<WorkerSteps> by_process;
  auto infos = ReadTraces(directory, [&](size_t process, const json& event) {
    by_process.resize(std::max(by_process.size(), process + 1));
    if (event.contains("args")) TakeSpan(event, by_process[process]);
  });
  if (!infos.ok()) return infos.status();
  std::vector<WorkerSteps> workers;
  for (size_t i = 0; i < infos->size(); ++i) {
    if ((*infos)[i].role != "worker") continue;
    const int64_t shift = (*infos)[i].CommonNs(0);
    for (auto& [number, step] : by_process[i]) {
      if (step.went_on == 0) continue;
      step.arrived += shift;
      step.went_on += shift;
    }
    workers.push_back(std::move(by_process[i]));
  }
  const TraceInfo& job = infos->front();
  const Explanation explanation =
      Explain(workers, {job.sync, job.staleness, job.backup_workers});
  if (explanation.total.steps == 0) {
    return absl::NotFoundError(
        absl::StrCat("the timelines in ", directory, " hold no whole step"));
  }
  PrintTimes(explanation);
  PrintHeldUp("waited for", explanation.late, explanation.total.whole);
  PrintHeldUp("answered last, of exposed", explanation.servers,
              explanation.total.whole);
  std::cout << "\n";
  PrintDoubts(*infos);
  return absl::OkStatus();
}

absl::Status Merge(const std::string& directory, const std::string& out) {
  const std::string path =
      out.empty() ? absl::StrCat(directory, "/timeline.json") : out;
  auto infos = MergeTraces(directory, path);
  if (!infos.ok()) return infos.status();
  PrintDoubts(*infos);
  std::cout << path << ": " << infos->size()
            << " processes; open it in ui.perfetto.dev or chrome://tracing\n";
  return absl::OkStatus();
}

}  // namespace

int RunTimeline(const Args& args) {
  CLI::App app(kDescription, "psring timeline");
  std::string directory, out;
  CLI::App* merge = app.add_subcommand(
      "merge", "Writes one file of all processes, for viewers");
  merge->add_option("--out", out,
                    "The file to write; default: DIR/timeline.json");
  CLI::App* explain = app.add_subcommand(
      "explain", "Prints where a step's time went, and who was waited for");
  for (CLI::App* command : {merge, explain}) {
    command->add_option("DIR", directory, "Folder that --timeline named")
        ->required();
  }
  app.require_subcommand(1);
  app.footer(kExample);
  if (auto code = ParseFlags(app, args)) return *code;
  const absl::Status status =
      merge->parsed() ? Merge(directory, out) : PrintExplanation(directory);
  if (status.ok()) return 0;
  std::cerr << "psring timeline: " << status.message() << std::endl;
  return kExitFailed;
}

}  // namespace psring
