#include "cli/compare_plan.h"

#include <algorithm>
#include <charconv>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/compare_checks.h"
#include "cli/compare_flags.h"
#include "cli/script_identity.h"
#include "cli/version.h"
#include "common/cluster/environment.h"
#include "common/cluster/security.h"
#include "common/host_cores.h"
#include "common/net/zmq_info.h"
#include "common/optim/optimizer.h"
#include "gpu/device.h"
#include "lab/host/gpu_info.h"
#include "lab/host/machine.h"
#include "lab/study/goal.h"

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

// Where things go, not what they are: a study that is resumed may have others.
constexpr const char* kNotOfTheStudy[] = {kOutFlag, "--page",
                                          "--page-token-file"};

// In as many digits as it takes to read the same number, where StrCat has six.
std::string ExactText(double value) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

std::vector<std::string> WorkerFlags(const CommandLine& line,
                                     const CompareFlags& flags,
                                     const Args& passed_on) {
  std::vector<std::string> all = {
      absl::StrCat("--model=", flags.model),
      absl::StrCat("--data=", flags.data),
      flags.steps > 0 ? absl::StrCat("--steps=", flags.steps)
                      : absl::StrCat("--epochs=", flags.epochs),
      absl::StrCat("--batch-size=", flags.batch_size),
      absl::StrCat("--lr=", ExactText(flags.lr)),
      absl::StrCat("--optimizer=", flags.optimizer),
  };
  if (!IsAdam(flags.optimizer) || line.Has("--momentum")) {
    all.push_back(absl::StrCat("--momentum=", ExactText(flags.momentum)));
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
  // Quoted: "a b" is another argument than a and b.
  flags.push_back({"--", Quoted(passed_on)});
  return flags;
}

// Unless the user says where to compute.
void ChooseDevice(const AxisValues& values, const Args& passed_on, Job& job) {
  const auto gpus = ListCudaDevices();
  if (!gpus.ok() || HasFlag(passed_on, "--device")) return;
  const auto num_gpus = static_cast<int>(gpus->size());
  const int workers = MostWorkers(values);
  if (CommonDevice(workers, num_gpus) != "cpu") return;
  std::cerr << "psring compare: " << workers << " workers on a host with "
            << num_gpus
            << " GPU(s): all runs compute on the CPU. -- --device=cuda "
               "--allow-shared-gpu lets them share"
            << std::endl;
  job.worker_flags.push_back("--device=cpu");
}

Job SharedJob(const CommandLine& line, const CompareFlags& flags,
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

// The device is chosen by the GPUs that there are, so it is no flag.
std::map<std::string, std::string> DescribePrograms(const Job& job) {
  std::map<std::string, std::string> described =
      DescribeFiles({job.ps_binary, job.worker_binary});
  if (HasFlag(job.worker_flags, "--device")) {
    described["--device"] = ValueOf(ArgsOf(job.worker_flags, "--device"));
  }
  return described;
}

Aim AimOf(const CommandLine& line, const CompareFlags& flags) {
  const bool by_loss = line.Has("--target-loss");
  Aim aim;
  if (by_loss || !flags.metric_loss.empty()) aim.score = Score::kTestLoss;
  if (line.Has("--target-accuracy")) aim.score = Score::kAccuracy;
  double target = 0;  // not std::stod, which throws at 1e-310
  if (absl::SimpleAtod(by_loss ? flags.target_loss : flags.target, &target)) {
    aim.target = target;
  }
  return aim;
}

StudySetup Setup(const Args& args, const CompareFlags& flags) {
  const auto torch = FindLibtorch(flags.binaries.worker);
  StudySetup setup;
  setup.command = CommandText("psring compare", args);
  setup.created = DateAndTime();
  setup.commit = BuiltCommit();
  setup.libtorch = torch.ok() ? torch->version : "unknown";
  setup.zeromq = ZmqVersion();
  setup.machine = DescribeMachine();
  return setup;
}

}  // namespace

std::variant<StudyPlan, int> PlanCompare(const Args& args) {
  CommandLine line(kDescription, "psring compare");
  CompareFlags flags;
  AddCompareFlags(line, flags);
  Args passed_on;
  if (auto code = line.ParseBeforeDashes(
          args, "the workers' flags, or your program and its arguments",
          passed_on)) {
    return *code;
  }
  auto values = ParseAxes(flags.axes, flags.seed);
  const absl::Status s = values.ok()
                             ? CheckCompare(line, flags, *values, passed_on)
                             : values.status();
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
  plan.setup.inputs = IsScript(passed_on) ? DescribeScript(passed_on)
                                          : DescribePrograms(plan.job);
  plan.runs = AllRuns(*values);
  plan.values = *std::move(values);
  plan.aim = AimOf(line, flags);
  plan.out = flags.out;
  plan.page = flags.page;
  plan.page_token_file = flags.page_token_file;
  return plan;
}

}  // namespace psring
