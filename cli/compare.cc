#include "cli/compare.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/comparison.h"
#include "cli/job.h"
#include "cli/machine.h"
#include "cli/mode_run.h"
#include "cli/mode_spec.h"
#include "cli/report.h"
#include "cli/report_files.h"
#include "cli/summary.h"
#include "cli/temp_dir.h"
#include "cli/text_table.h"
#include "cli/version.h"
#include "cli/weights.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "common/net/zmq_info.h"

namespace psring {
namespace {

constexpr char kDescription[] =
    "Trains one model in several ways, one after the other: the same first "
    "weights, the same batches. Prints a table and writes report.html and "
    "report.json. What follows `--` goes to every worker.";

constexpr char kExample[] =
    "A mode is ps-bsp (synchronous servers), ps-ssp:K (a worker may run K "
    "steps ahead\nof the slowest), ps-async (nobody waits) or ring (no "
    "servers).\n"
    "Example: two modes on your own digits, four workers\n"
    "  psring compare --modes=ps-bsp,ring --workers=4 --data=mnist:/data/mnist";

// What a comparison needs before it starts. The set-up's fields are flags.
struct Plan {
  std::string modes = "ps-bsp,ps-ssp:3,ps-async,ring";
  std::string out = ".";
  Binaries binaries;
  std::vector<ModeSpec> specs;
  Job job;
  ReportSetup setup;
};

void AddFlags(CLI::App& app, Plan& plan) {
  ReportSetup& setup = plan.setup;
  const auto add = [&](const char* name, auto& value, const char* what) {
    return app.add_option(name, value, what)->capture_default_str();
  };
  add("--modes", plan.modes, "what to compare");
  add("--model", setup.model, "see psring worker --help");
  add("--data", setup.data, "see psring worker --help");
  add("--workers", setup.workers, "number of workers")
      ->check(CLI::Range(1, 1024));
  add("--servers", setup.servers, "number of servers in the ps modes")
      ->check(CLI::Range(1, 1024));
  add("--epochs", setup.epochs, "passes over the data, for each mode")
      ->check(CLI::Range(1, 1000000));
  add("--batch-size", setup.batch_size, "images of each worker in a step")
      ->check(CLI::Range(1, 1000000));
  add("--lr", setup.lr, "learning rate")->check(CLI::Range(0.0, 1e6));
  add("--momentum", setup.momentum, "of the optimizer")
      ->check(CLI::Range(0.0, 1.0));
  add("--optimizer", setup.optimizer, "see psring worker --help");
  add("--seed", setup.seed, "of weights, batches and dropout")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  add("--out", plan.out, "folder of the report");
  plan.binaries.AddFlags(app);
  app.footer(kExample);
}

std::vector<std::string> WorkerFlags(const ReportSetup& setup,
                                     const Args& passed_on) {
  std::vector<std::string> flags = {
      absl::StrCat("--model=", setup.model),
      absl::StrCat("--data=", setup.data),
      absl::StrCat("--epochs=", setup.epochs),
      absl::StrCat("--batch-size=", setup.batch_size),
      absl::StrCat("--lr=", setup.lr),
      absl::StrCat("--momentum=", setup.momentum),
      absl::StrCat("--optimizer=", setup.optimizer),
      absl::StrCat("--seed=", setup.seed),
  };
  flags.insert(flags.end(), passed_on.begin(), passed_on.end());
  return flags;
}

void FillJob(const Args& passed_on, Plan* plan) {
  plan->job.workers = plan->setup.workers;
  plan->job.servers = plan->setup.servers;
  plan->job.threads_per_worker = std::max(1, NumCores() / plan->setup.workers);
  plan->job.ps_binary = plan->binaries.ps;
  plan->job.worker_binary = plan->binaries.worker;
  plan->job.worker_flags = WorkerFlags(plan->setup, passed_on);
}

void FillSetup(const Args& args, Plan* plan) {
  const auto torch = LibtorchVersion(plan->binaries.worker);
  plan->setup.command =
      absl::StrCat("psring compare ", absl::StrJoin(args, " "));
  plan->setup.threads_per_worker = plan->job.threads_per_worker;
  plan->setup.created =
      absl::FormatTime("%Y-%m-%d %H:%M %Z", absl::Now(), absl::LocalTimeZone());
  plan->setup.commit = BuiltCommit();
  plan->setup.libtorch = torch.ok() ? *torch : "unknown";
  plan->setup.zeromq = ZmqVersion();
  plan->setup.machine = DescribeMachine();
}

int Fail(const absl::Status& status, int exit_code = kExitFailed) {
  std::cerr << "psring compare: " << status.message() << std::endl;
  return exit_code;
}

// Whether the two runs that must agree do; nothing unless both took place.
absl::StatusOr<std::optional<bool>> IdenticalWeights(
    const std::vector<ModeRun>& runs) {
  std::vector<std::string> paths;
  for (const ModeRun& run : runs) {
    const std::string& name = run.result.spec.name;
    if (name == "ps-bsp" || name == "ring") paths.push_back(run.weights_path);
  }
  if (paths.size() < 2) return std::optional<bool>();
  const auto same = SameBytes(paths[0], paths[1]);
  if (!same.ok()) return same.status();
  return std::optional<bool>(*same);
}

absl::Status Finish(const Plan& plan, const std::vector<ModeRun>& runs) {
  std::vector<ModeResult> results;
  for (const ModeRun& run : runs) results.push_back(run.result);
  Comparison comparison = Compare(std::move(results));
  const auto identical = IdenticalWeights(runs);
  if (!identical.ok()) return identical.status();
  comparison.identical_weights = *identical;
  std::cout << "\n" << TextTable(SummaryCells(comparison)) << "\n";
  for (const std::string& verdict : Verdicts(comparison)) {
    std::cout << "* " << verdict << "\n";
  }
  absl::Status s = WriteReportFile(plan.out, kReportJson,
                                   RenderJson(plan.setup, comparison));
  if (!s.ok()) return s;
  s = WriteReportFile(plan.out, kReportHtml,
                      RenderHtml(plan.setup, comparison));
  if (!s.ok()) return s;
  const auto out = std::filesystem::absolute(plan.out).lexically_normal();
  std::cout << "\nreport: " << (out / kReportHtml).string() << std::endl;
  return absl::OkStatus();
}

int TrainAll(const Plan& plan) {
  Cancellation cancellation;
  SignalWatcher signals(cancellation);
  const auto dir = TempDir::Create();
  if (!dir.ok()) return Fail(dir.status());
  std::vector<ModeRun> runs;
  for (const ModeSpec& spec : plan.specs) {
    const std::string mode_dir = absl::StrCat(dir->path(), "/", spec.name);
    std::error_code error;
    std::filesystem::create_directory(mode_dir, error);
    int exit_code = 0;
    auto run = RunMode(spec, plan.job, mode_dir, cancellation, &exit_code);
    if (signals.received() != 0) {
      return Fail(absl::CancelledError("interrupted; all processes have ended"),
                  128 + signals.received());
    }
    if (!run.ok()) {
      return Fail(absl::AbortedError(
                      absl::StrCat(spec.name, ": ", run.status().message())),
                  exit_code);
    }
    runs.push_back(*std::move(run));
  }
  const absl::Status s = Finish(plan, runs);
  return s.ok() ? 0 : Fail(s);
}

}  // namespace

int RunCompare(const Args& args) {
  CLI::App app(kDescription, "psring compare");
  Plan plan;
  AddFlags(app, plan);
  const auto separator = std::find(args.begin(), args.end(), "--");
  if (auto code = ParseFlags(app, Args(args.begin(), separator))) return *code;
  Args passed_on;
  if (separator != args.end()) passed_on.assign(separator + 1, args.end());
  auto specs = ParseModes(plan.modes);
  const absl::Status flags =
      specs.ok() ? CheckFlags(passed_on) : specs.status();
  if (!flags.ok()) return UsageError(app, std::string(flags.message()));
  plan.specs = *std::move(specs);
  FillJob(passed_on, &plan);
  if (auto s = CheckReportPath(plan.out); !s.ok()) return Fail(s);
  FillSetup(args, &plan);
  return TrainAll(plan);
}

}  // namespace psring
