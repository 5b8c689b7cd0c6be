#include "cli/compare_plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/version.h"
#include "common/cluster/environment.h"
#include "common/cluster/security.h"
#include "common/host_cores.h"
#include "common/net/zmq_info.h"
#include "common/optim/optimizer.h"
#include "common/slowdown.h"
#include "lab/host/gpu_info.h"
#include "lab/host/hosts.h"
#include "lab/host/link_spec.h"
#include "lab/host/machine.h"
#include "lab/study/goal.h"
#include "lab/study/printed_metric.h"
#include "lab/study/way_spec.h"
#include "lab/study/weights.h"

namespace psring {
namespace {

constexpr char kDescription[] =
    "Trains one model in several ways, one after the other, from the same "
    "first weights over the same batches. Prints a table and writes "
    "report.html and report.json. What follows `--` goes to every worker of "
    "the built-in trainer. Or name your own program there, which imports "
    "psring: every worker runs it. "
    "With several seeds, numbers of workers or servers, faults or compressions "
    "it runs every combination: a study. --out=DIR keeps its finished runs, so "
    "that the same command resumes a study that was stopped.";

constexpr char kExample[] =
    "+FLAG=VALUE after a way goes to its workers only.\n"
    "Example: two ways on your own digits, four workers, three seeds\n"
    "  psring compare --modes=ps-bsp,ring --workers=4 --seeds=3 "
    "--data=mnist:/data/mnist\n"
    "and your own script, beside torch.distributed\n"
    "  psring compare --modes=ring,ps-bsp,ps-async,ddp --workers=2,4 "
    "-- python3 train.py";

constexpr char kOutFlag[] = "--out";
// Where things go, not what they are: a study that is resumed may have others.
constexpr const char* kNotOfTheStudy[] = {kOutFlag, "--page",
                                          "--page-token-file"};

// Those of docs/python.md that change a training and that no axis sets.
constexpr const char* kScriptsVariables[] = {
    "PSRING_UPDATE", "PSRING_BUCKET_MB", "PSRING_GPU", "PSRING_OWN_SERVERS"};

// Flags as the user gives them.
struct Flags {
  std::vector<std::vector<std::string>> axes;  // by the table's order
  std::string model = "lenet";
  std::string data = "digits";
  int epochs = 10;
  int64_t steps = 0;
  int batch_size = 64;
  double lr = 0.02;
  double momentum = 0.5;
  std::string optimizer = "momentum";
  int64_t seed = 0;
  std::string target = "auto";
  std::string target_loss;
  std::string metric, metric_loss;
  std::string out;
  std::string page, page_token_file;
  bool insecure = false;
  Binaries binaries;
};

std::string CheckTarget(const std::string& text) {
  double target = 0;
  if (text == "auto") return "";
  if (absl::SimpleAtod(text, &target) && target > 0 && target <= 1) return "";
  return absl::StrCat("\"", text, "\" is not auto or above 0 and at most 1");
}

std::string CheckTargetLoss(const std::string& text) {
  double target = 0;
  if (text == "auto" ||
      (absl::SimpleAtod(text, &target) && std::isfinite(target))) {
    return "";
  }
  return absl::StrCat("\"", text, "\" is neither auto nor a number");
}

void AddAxisFlags(CommandLine& line, Flags& flags) {
  flags.axes.resize(Axes().size());
  for (size_t i = 0; i < Axes().size(); ++i) {
    const Axis& axis = Axes()[i];
    line.Add(axis.flag, flags.axes[i], axis.help)
        .Repeatable()
        .Default(InitialText(axis))
        .TypeName(axis.kind == AxisKind::kWhole ? "SPEC" : "LIST");
  }
}

void AddFlags(CommandLine& line, Flags& flags) {
  AddAxisFlags(line, flags);
  line.Add("--model", flags.model, "Model; see psring worker --help");
  line.Add("--data", flags.data, "Training data; see psring worker --help");
  line.Add("--epochs", flags.epochs,
           "Passes over the training data in each run")
      .Range(1, 1000000);
  line.Add("--steps", flags.steps,
           "Steps of each run, in place of --epochs; 0: --epochs counts")
      .Range(int64_t{0}, int64_t{1} << 40)
      .Excludes("--epochs");
  line.Add("--batch-size", flags.batch_size, "Samples of each worker in a step")
      .Range(1, 1000000);
  line.Add("--lr", flags.lr, "Learning rate").Range(0.0, 1e6);
  line.Add("--momentum", flags.momentum,
           "Momentum of the optimizer; with --optimizer=sgd, a value above 0 "
           "selects momentum: give --momentum=0 for plain SGD")
      .Range(0.0, 1.0);
  line.Add("--optimizer", flags.optimizer,
           "Optimizer; see psring worker --help");
  line.Add("--seed", flags.seed, "First seed of weights, batches and dropout")
      .Range(int64_t{0}, int64_t{1} << 40);
  line.Add("--target-accuracy", flags.target,
           "Accuracy to which times are measured, such as 0.93; auto: the "
           "highest that all ways reach with every seed, leaving out ways "
           "that end more than a tenth below the best")
      .Check(CheckTarget);
  line.Add("--target-loss", flags.target_loss,
           "Judges by the loss at evaluations in place of the accuracy: the "
           "loss to which times are measured, such as 0.3; auto: the lowest "
           "that all ways reach, leaving out ways that end far above the best. "
           "A script that logs a test_loss and no accuracy is judged so anyway")
      .Check(CheckTargetLoss)
      .Excludes("--target-accuracy");
  line.Add("--metric", flags.metric,
           "For a script that does not call psring.log: a regular expression "
           "with the accuracy (or its percentage) in parentheses, in the lines "
           "that its rank 0 prints")
      .Excludes("--target-loss");
  line.Add("--metric-loss", flags.metric_loss,
           "The same for a loss, or another number of which lower is better, "
           "such as a perplexity")
      .Excludes("--metric")
      .Excludes("--target-accuracy");
  line.Add(kOutFlag, flags.out,
           "Folder that keeps the study and its report; without it the "
           "report is written here and no run is kept");
  AddPageFlags(line, flags.page, flags.page_token_file);
  line.Add("--insecure", flags.insecure,
           "No key: train with messages that are neither encrypted nor proven");
  AddBinaryFlags(line, flags.binaries);
  line.Footer(
      absl::StrCat("Ways, and whom a step waits for:\n", WaysHelp(), kExample));
}

std::vector<std::string> WorkerFlags(const CommandLine& line,
                                     const Flags& flags,
                                     const Args& passed_on) {
  std::vector<std::string> all = {
      absl::StrCat("--model=", flags.model),
      absl::StrCat("--data=", flags.data),
      flags.steps > 0 ? absl::StrCat("--steps=", flags.steps)
                      : absl::StrCat("--epochs=", flags.epochs),
      absl::StrCat("--batch-size=", flags.batch_size),
      absl::StrCat("--lr=", flags.lr),
      absl::StrCat("--optimizer=", flags.optimizer),
  };
  if (!IsAdam(flags.optimizer) || line.Has("--momentum")) {
    all.push_back(absl::StrCat("--momentum=", flags.momentum));
  }
  all.insert(all.end(), passed_on.begin(), passed_on.end());
  return all;
}

int MostWorkers(const AxisValues& values) {
  int most = 1;
  for (const std::string& text : values[AxisIndex("workers")]) {
    int workers = 0;
    if (absl::SimpleAtoi(text, &workers)) most = std::max(most, workers);
  }
  return most;
}

// The flags of a study that only the built-in trainer can follow.
constexpr const char* kTrainersFlags[] = {
    "--model", "--data",     "--epochs",    "--steps", "--batch-size",
    "--lr",    "--momentum", "--optimizer", "--slow",  "--link"};

// What follows `--` is a program, not flags.
bool IsScript(const Args& passed_on) {
  return !passed_on.empty() && !absl::StartsWith(passed_on[0], "-");
}

// Every flag with its value. An axis's is what its text came to, so that
// "--seeds=3" and "--seeds=0,1,2" are one study. A script has none of
// the built-in trainer's.
std::vector<std::pair<std::string, std::string>> AllFlags(
    const CommandLine& line, const AxisValues& values, const Args& passed_on) {
  std::vector<std::pair<std::string, std::string>> flags;
  for (size_t i = 0; i < Axes().size(); ++i) {
    const bool whole = Axes()[i].kind == AxisKind::kWhole;
    flags.push_back(
        {Axes()[i].flag, absl::StrJoin(values[i], whole ? "; " : ",")});
  }
  for (const CommandLine::FlagValue& flag : line.All()) {
    const bool elsewhere = absl::c_linear_search(kNotOfTheStudy, flag.name);
    if (elsewhere || absl::c_any_of(Axes(), [&](const Axis& axis) {
          return flag.name == axis.flag;
        })) {
      continue;
    }
    if (IsScript(passed_on) &&
        absl::c_linear_search(kTrainersFlags, flag.name)) {
      continue;
    }
    flags.push_back({flag.name, flag.value});
  }
  flags.push_back({"--", absl::StrJoin(passed_on, " ")});
  return flags;
}

// Unless the user says where to compute.
void ChooseDevice(const AxisValues& values, const Args& passed_on, Job& job) {
  const auto cuda = FindCuda();
  if (!cuda.has_value() || HasFlag(passed_on, "--device")) return;
  const int workers = MostWorkers(values);
  if (CommonDevice(workers, cuda->num_devices) != "cpu") return;
  std::cerr << "psring compare: " << workers << " workers on a host with "
            << cuda->num_devices
            << " GPU(s): all runs compute on the CPU. -- --device=cuda "
               "--allow-shared-gpu lets them share"
            << std::endl;
  job.worker_flags.push_back("--device=cpu");
}

Job SharedJob(const CommandLine& line, const Flags& flags,
              const AxisValues& values, const Args& passed_on) {
  Job job;
  job.metric = flags.metric.empty() ? flags.metric_loss : flags.metric;
  job.metric_is_loss = !flags.metric_loss.empty();
  // The same for every run, so that more workers are just more workers.
  job.threads_per_worker = std::max(1, HostCores() / MostWorkers(values));
  int threads = 0;
  if (absl::SimpleAtoi(ValueOf(ArgsOf(passed_on, "--threads")), &threads) &&
      threads > 0 && !IsScript(passed_on)) {
    job.threads_per_worker = threads;
  }
  job.ps_binary = flags.binaries.ps;
  job.worker_binary = flags.binaries.worker;
  if (IsScript(passed_on)) {
    job.script = passed_on;
  } else {
    job.worker_flags = WorkerFlags(line, flags, passed_on);
    ChooseDevice(values, passed_on, job);
  }
  return job;
}

Aim AimOf(const CommandLine& line, const Flags& flags) {
  const bool by_loss = line.Has("--target-loss");
  Aim aim;
  if (by_loss || !flags.metric_loss.empty()) aim.score = Score::kTestLoss;
  if (line.Has("--target-accuracy")) aim.score = Score::kAccuracy;
  const std::string& target = by_loss ? flags.target_loss : flags.target;
  if (target != "auto") aim.target = std::stod(target);
  return aim;
}

StudySetup Setup(const Args& args, const Flags& flags) {
  const auto torch = LibtorchVersion(flags.binaries.worker);
  StudySetup setup;
  setup.command = CommandText("psring compare", args);
  setup.created = DateAndTime();
  setup.commit = BuiltCommit();
  setup.libtorch = torch.ok() ? *torch : "unknown";
  setup.zeromq = ZmqVersion();
  setup.machine = DescribeMachine();
  return setup;
}

// An axis's flag belongs before `--`, where the report takes notice of it, and
// a way's into --modes.
absl::Status CheckNoAxis(const Args& flags) {
  for (const char* flag : {"--sync", "--staleness"}) {
    if (!HasFlag(flags, flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " belongs to the way: --modes names it, such as ps-ssp:3"));
  }
  for (const std::string& flag : flags) {
    for (const Axis& axis : Axes()) {
      const char* taken = axis.worker_flag;
      if (taken == nullptr || !IsFlag(flag, taken)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          flag, " is an axis of the study: give ", axis.flag, " before `--`"));
    }
  }
  if (HasFlag(flags, "--mode")) {
    return absl::InvalidArgumentError(
        "--mode belongs to the way: --modes names it, such as ring");
  }
  if (HasFlag(flags, "--checkpoint-dir")) {
    return absl::InvalidArgumentError(
        "--checkpoint-dir: every run has one of its own; leave it out");
  }
  return CheckFlags(flags,
                    {"--workers", "--servers", "--page", "--page-token-file"});
}

// What follows `--` and what the ways carry, which may be another value of a
// flag of the study's.
absl::Status CheckWorkerFlags(const AxisValues& values, const Args& passed_on) {
  if (absl::Status s = CheckNoAxis(passed_on); !s.ok()) return s;
  for (const char* flag : kTrainersFlags) {
    if (!HasFlag(passed_on, flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is a flag of the study: give it before `--`"));
  }
  const auto specs = ParseWays(absl::StrJoin(values[AxisIndex(kWayAxis)], ","));
  if (!specs.ok()) return specs.status();
  for (const WaySpec& spec : *specs) {
    if (absl::Status s = CheckNoAxis(spec.worker_flags); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status CheckScript(const CommandLine& line, const AxisValues& values,
                         const Flags& flags, const Args& passed_on) {
  const auto specs = ParseWays(absl::StrJoin(values[AxisIndex(kWayAxis)], ","));
  if (!specs.ok()) return specs.status();
  if (!IsScript(passed_on)) {
    if (absl::c_any_of(*specs, [](const WaySpec& way) { return way.ddp; })) {
      return absl::InvalidArgumentError(
          "--modes: ddp is for a script after `--`; psring bench train holds "
          "the built-in trainer against it");
    }
    for (const char* flag : {"--metric", "--metric-loss"}) {
      if (!line.Has(flag)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(flag,
                       " is for a script after `--`; the built-in trainer "
                       "tells its accuracy and loss by itself"));
    }
    return absl::OkStatus();
  }
  for (const char* flag : kTrainersFlags) {
    if (!line.Has(flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " is for the built-in trainer; the script ", passed_on[0],
        " has options of its own, which follow its name"));
  }
  for (const WaySpec& way : *specs) {
    if (way.plain()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--modes: ", way.name, ": a script has no flags after a +"));
  }
  for (const auto& [flag, pattern] :
       {std::pair("--metric", flags.metric),
        std::pair("--metric-loss", flags.metric_loss)}) {
    const absl::Status metric =
        pattern.empty() ? absl::OkStatus() : CheckMetric(pattern);
    if (!metric.ok()) return OfFlag(flag, metric);
  }
  return absl::OkStatus();
}

// Flags of the study that the others leave without effect.
absl::Status CheckUses(const CommandLine& line, const Flags& flags,
                       const AxisValues& values) {
  const auto specs = ParseWays(absl::StrJoin(values[AxisIndex(kWayAxis)], ","));
  if (!specs.ok()) return specs.status();
  const bool has_servers = absl::c_any_of(
      *specs, [](const WaySpec& way) { return way.has_servers(); });
  if (line.Has("--servers") && !has_servers) {
    return absl::InvalidArgumentError(
        "--servers is for the ps ways, and --modes names none");
  }
  const std::string seeds = absl::StrJoin(flags.axes[AxisIndex("seed")], ",");
  if (!line.Has("--seed") || !absl::StrContains(seeds, ',')) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--seed has no effect where --seeds=", seeds, " lists them"));
}

// What a run would find out only when its turn comes.
absl::Status CheckFaults(const std::vector<Point>& runs) {
  for (const Point& run : runs) {
    const int workers = std::stoi(ValueOf(run, "workers"));
    if (const std::string& slow = ValueOf(run, "slow"); slow != kNone) {
      const auto slowdown = Slowdown::Create({slow}, /*seed=*/0);
      if (!slowdown.ok()) return slowdown.status();
      if (auto s = slowdown->CheckWorkers(workers); !s.ok()) return s;
    }
    const std::string& link = ValueOf(run, "link");
    if (link == kNone) continue;
    const auto spec = ParseLink(link, workers);
    if (!spec.ok()) return spec.status();
    if (auto s = Hosts::CheckMachine(); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// A file, but no program such as an interpreter.
bool IsScriptFile(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  char start[4] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof(start));
  return absl::string_view(start, sizeof(start)) !=
         "\x7f"
         "ELF";
}

// What a script's runs depend on, beside the flags: the first file that its
// command names (others may be what it writes), and the variables that psring
// reads for it.
std::map<std::string, std::string> DescribeScript(const Args& command) {
  std::map<std::string, std::string> described;
  const auto script = absl::c_find_if(command, IsScriptFile);
  const std::string& file = script == command.end() ? command[0] : *script;
  if (const auto crc = Crc32OfFile(file); crc.ok()) {
    described[absl::StrCat("the file ", file)] =
        absl::StrFormat("CRC-32 %08x", *crc);
  }
  const Variables variables = ReadVariables();
  for (const char* name : kScriptsVariables) {
    const auto found = variables.find(name);
    if (found != variables.end()) described[name] = found->second;
  }
  return described;
}

}  // namespace

std::variant<StudyPlan, int> PlanCompare(const Args& args) {
  CommandLine line(kDescription, "psring compare");
  Flags flags;
  AddFlags(line, flags);
  Args passed_on;
  if (auto code = line.ParseBeforeDashes(
          args, "the workers' flags, or your program and its arguments",
          passed_on)) {
    return *code;
  }
  auto values = ParseAxes(flags.axes, flags.seed);
  absl::Status s = values.status();
  if (s.ok()) s = CheckScript(line, *values, flags, passed_on);
  if (s.ok() && !IsScript(passed_on)) s = CheckWorkerFlags(*values, passed_on);
  if (s.ok()) s = CheckUses(line, flags, *values);
  if (s.ok()) s = CheckFaults(AllRuns(*values));
  if (s.ok()) s = CheckPageFlags(line, flags.page);
  if (!s.ok()) return line.UsageError(std::string(s.message()));
  auto security = NewSecurity({.insecure = flags.insecure}, ReadVariables());
  if (!security.ok()) {
    return line.UsageError(std::string(security.status().message()));
  }
  StudyPlan plan;
  plan.job = SharedJob(line, flags, *values, passed_on);
  plan.job.security = *std::move(security);
  plan.setup = Setup(args, flags);
  plan.setup.threads_per_worker = plan.job.threads_per_worker;
  plan.setup.flags = AllFlags(line, *values, passed_on);
  if (IsScript(passed_on)) plan.setup.script = DescribeScript(passed_on);
  plan.runs = AllRuns(*values);
  plan.values = *std::move(values);
  plan.aim = AimOf(line, flags);
  plan.out = flags.out;
  plan.page = flags.page;
  plan.page_token_file = flags.page_token_file;
  return plan;
}

}  // namespace psring
