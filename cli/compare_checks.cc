#include "cli/compare_checks.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "common/slowdown.h"
#include "lab/host/hosts.h"
#include "lab/host/job.h"
#include "lab/host/link_spec.h"
#include "lab/study/printed_metric.h"
#include "lab/study/way_spec.h"

namespace psring {
namespace {

using Ways = std::vector<WaySpec>;

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
absl::Status CheckWorkerFlags(const Ways& ways, const Args& passed_on) {
  if (absl::Status s = CheckNoAxis(passed_on); !s.ok()) return s;
  for (const char* flag : kTrainersFlags) {
    if (!HasFlag(passed_on, flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is a flag of the study: give it before `--`"));
  }
  for (const WaySpec& way : ways) {
    if (absl::Status s = CheckNoAxis(way.worker_flags); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status CheckScript(const CommandLine& line, const CompareFlags& flags,
                         const Ways& ways, const Args& passed_on) {
  if (!IsScript(passed_on)) {
    if (absl::c_any_of(ways, [](const WaySpec& way) { return way.ddp; })) {
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
        flag,
        " is for the built-in trainer; give your program's own options "
        "after its name"));
  }
  for (const WaySpec& way : ways) {
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
absl::Status CheckUses(const CommandLine& line, const CompareFlags& flags,
                       const Ways& ways) {
  const bool has_servers = absl::c_any_of(
      ways, [](const WaySpec& way) { return way.has_servers(); });
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

}  // namespace

absl::Status CheckCompare(const CommandLine& line, const CompareFlags& flags,
                          const AxisValues& values, const Args& passed_on) {
  const Ways ways = WaysOf(values);
  absl::Status s = CheckScript(line, flags, ways, passed_on);
  if (s.ok() && !IsScript(passed_on)) s = CheckWorkerFlags(ways, passed_on);
  if (s.ok()) s = CheckUses(line, flags, ways);
  if (s.ok()) s = CheckFaults(AllRuns(values));
  return s.ok() ? CheckPageFlags(line, flags.page) : s;
}

}  // namespace psring
