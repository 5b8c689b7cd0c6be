#include "cli/bench.h"

#include <iostream>
#include <map>
#include <string>

#include "absl/strings/strip.h"
#include "cli/bench_plan.h"
#include "cli/command.h"
#include "cli/version.h"
#include "common/model/stream_copy.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "common/process/open_files.h"
#include "lab/bench/bench_report.h"
#include "lab/bench/bench_run.h"
#include "lab/host/machine.h"
#include "lab/host/other_load.h"
#include "lab/page/report_files.h"

namespace psring {
namespace {

constexpr char kName[] = "psring bench";

constexpr char kDescription[] =
    "Measures the exchange of gradients (allreduce; pushpull: push, update, "
    "pull), the links and training, and verifies every result. Prints a table "
    "and writes bench.html and bench.json.";

std::map<std::string, std::string> AllFlags(const CommandLine& line) {
  std::map<std::string, std::string> values;
  for (const CommandLine::FlagValue& flag : line.All()) {
    values[std::string(absl::StripPrefix(flag.name, "--"))] = flag.value;
  }
  return values;
}

BenchResults Describe(const CommandLine& line, const Args& args) {
  BenchResults results;
  results.command = CommandText("psring bench", args);
  results.created = DateAndTime();
  results.commit = BuiltCommit();
  results.flags = AllFlags(line);
  results.machine = DescribeMachine();
  results.copy_kind = StreamCopyKind();
  return results;
}

absl::Status Report(const BenchResults& results, const std::string& out) {
  std::cout << BenchText(results);
  if (absl::Status s = WriteBenchReport(results, out); !s.ok()) return s;
  std::cout << "\nreport: " << ReportPath(out, kBenchHtml) << std::endl;
  return absl::OkStatus();
}

}  // namespace

int RunBench(const Args& args) {
  CommandLine line(kDescription, kName);
  BenchFlags flags;
  AddBenchFlags(line, flags);
  if (auto code = line.Parse(args)) return *code;
  const auto options = PlanBench(line, flags);
  if (!options.ok()) {
    return line.UsageError(std::string(options.status().message()));
  }
  if (auto s = CheckReportPath(flags.out, {kBenchHtml, kBenchJson}); !s.ok()) {
    return Fail(kName, s);
  }
  if (auto s = CheckProgram(options->binaries.rank); !s.ok()) {
    return Fail(kName, s);
  }
  BenchResults results = Describe(line, args);
  IgnoreBrokenPipes();
  AllowAllFiles();
  Cancellation cancellation;
  SignalWatcher signals(cancellation, {.patient = true});
  const OtherLoad others;
  absl::Status status = RunBenchmarks(*options, cancellation, &results);
  results.other_cores = others.Cores();
  if (status.ok()) {
    status = Report(results, flags.out);
  } else if (!results.links.empty() || !results.points.empty() ||
             !results.trainings.empty()) {
    results.cut_short = std::string(status.message());
    if (absl::Status s = Report(results, flags.out); !s.ok()) Fail(kName, s);
  }
  return ExitCode(kName, status, signals.received());
}

}  // namespace psring
