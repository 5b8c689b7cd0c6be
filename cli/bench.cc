#include "cli/bench.h"

#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "cli/bench_plan.h"
#include "cli/bench_run.h"
#include "cli/version.h"
#include "common/model/stream_copy.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "lab/bench/bench_cells.h"
#include "lab/bench/bench_html.h"
#include "lab/bench/bench_json.h"
#include "lab/host/machine.h"
#include "lab/page/report_files.h"
#include "lab/page/report_parts.h"
#include "lab/page/text_table.h"

namespace psring {
namespace {

constexpr char kBenchHtml[] = "bench.html";
constexpr char kBenchJson[] = "bench.json";

constexpr char kDescription[] =
    "Measures the exchange of gradients (allreduce; pushpull: push, update, "
    "pull), the links and training, and verifies every result. Prints a table "
    "and writes bench.html and bench.json.";

std::map<std::string, std::string> AllFlags(const CLI::App& app) {
  std::map<std::string, std::string> values;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() || option == app.get_help_ptr()) continue;
    const std::string name(absl::StripPrefix(option->get_name(), "--"));
    values[name] = option->count() > 0 ? absl::StrJoin(option->results(), ",")
                                       : option->get_default_str();
  }
  return values;
}

BenchResults Describe(const CLI::App& app, const Args& args) {
  BenchResults results;
  results.command = absl::StrCat("psring bench ", absl::StrJoin(args, " "));
  results.created =
      absl::FormatTime("%Y-%m-%d %H:%M %Z", absl::Now(), absl::LocalTimeZone());
  results.commit = BuiltCommit();
  results.flags = AllFlags(app);
  results.machine = DescribeMachine();
  results.copy_kind = StreamCopyKind();
  return results;
}

absl::Status Report(const BenchResults& results, const std::string& out) {
  for (const auto& cells :
       {PointCells(results), LinkCells(results), TrainCells(results)}) {
    if (cells.size() > 1) std::cout << "\n" << TextTable(cells);
  }
  std::cout << "\n";
  for (const std::string& note : Notes(results)) {
    std::cout << "* " << note << "\n";
  }
  absl::Status s =
      WriteReportFile(out, kBenchJson, DumpJson(ToJson(results), 1) + "\n");
  if (!s.ok()) return s;
  s = WriteReportFile(out, kBenchHtml, RenderBenchHtml(results));
  if (!s.ok()) return s;
  const auto path = std::filesystem::absolute(out).lexically_normal();
  std::cout << "\nreport: " << (path / kBenchHtml).string() << std::endl;
  return s;
}

int Fail(const absl::Status& status, int exit_code = kExitFailed) {
  std::cerr << "psring bench: " << status.message() << std::endl;
  return exit_code;
}

}  // namespace

int RunBench(const Args& args) {
  CLI::App app(kDescription, "psring bench");
  BenchFlags flags;
  AddBenchFlags(app, flags);
  if (auto code = ParseFlags(app, args)) return *code;
  auto plan = PlanBench(app, flags);
  if (!plan.ok()) return UsageError(app, std::string(plan.status().message()));
  if (auto s = CheckReportPath(flags.out, {kBenchHtml, kBenchJson}); !s.ok()) {
    return Fail(s);
  }
  BenchResults results = Describe(app, args);
  Cancellation cancellation;
  SignalWatcher signals(cancellation);
  absl::Status status =
      BenchRun(flags, *std::move(plan), cancellation).Measure(&results);
  if (signals.received() != 0) {
    return Fail(absl::CancelledError("interrupted; all processes have ended"),
                128 + signals.received());
  }
  if (status.ok()) status = Report(results, flags.out);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace psring
