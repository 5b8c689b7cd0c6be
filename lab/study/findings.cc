#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lab/page/format.h"
#include "lab/study/contrast.h"
#include "lab/study/study_progress.h"
#include "lab/study/verdict.h"
#include "lab/study/way_spec.h"
#include "lab/study/wording.h"

namespace psring {
namespace {

using Strings = std::vector<std::string>;

// How speed per step and number of steps make up the time to the target.
std::string WhySentence(const Comparison& comparison, const Group& group) {
  // A script's time goes on while it evaluates.
  const bool script = group.variants[0]->runs[0].counts_steps;
  const char* const per_step =
      script ? " per step, its evaluations counted," : " per step";
  Strings parts;
  for (const StepContrast& other : ContrastSteps(comparison, group)) {
    parts.push_back(absl::StrCat(NameAlong(*other.variant, kWayAxis), " is ",
                                 Compared(other.speed, "fast"), per_step,
                                 " and needs ", Compared(other.steps, "many"),
                                 " steps"));
  }
  if (parts.empty()) return "";
  return Sentence(
      group, absl::StrCat("against ", NameAlong(*group.variants[0], kWayAxis),
                          ", ", absl::StrJoin(parts, "; "), "."));
}

// What training ends with, on average: "-" of what tells nothing.
std::string EndText(const Goal& goal, const Variant& variant, double mean) {
  const bool tells = std::any_of(
      variant.runs.begin(), variant.runs.end(),
      [&](const RunResult& run) { return std::isfinite(goal.BestOf(run)); });
  if (std::isfinite(mean) || !tells) return goal.Text(mean);
  return variant.runs.size() > 1 ? "no finite number with a seed"
                                 : "no finite number";
}

std::string EndSentence(const Comparison& comparison, const Group& group) {
  const Goal& goal = comparison.goal;
  Strings parts;
  for (const auto& [variant, end] : RankByEnd(goal, group)) {
    std::string range = EndText(goal, *variant, end.mean);
    if (end.min < end.max) {
      absl::StrAppend(&range, " (", goal.Text(end.min), " to ",
                      goal.Text(end.max), ")");
    }
    if (const int failed = NumFailed(comparison, *variant); failed > 0) {
      absl::StrAppend(&range, " with ", variant->runs.size(), " of ",
                      variant->runs.size() + failed, " seeds");
    }
    parts.push_back(absl::StrCat(NameAlong(*variant, kWayAxis), " ", range));
  }
  return Sentence(group, absl::StrCat("the final ", goal.plural(), " are ",
                                      Listing(parts), "."));
}

// The ways that ended with the same weights or should have, those with servers
// first.
Strings SynchronousWays(const Comparison& comparison) {
  Strings with_servers, rings;
  for (const std::string& name : comparison.values[AxisIndex(kWayAxis)]) {
    const auto way = ParseWays(name);
    if (!way.ok() || !way->front().synchronous() || !way->front().plain()) {
      continue;
    }
    if (!comparison.held_ways.contains(name)) continue;
    (way->front().has_servers() ? with_servers : rings).push_back(name);
  }
  with_servers.insert(with_servers.end(), rings.begin(), rings.end());
  return with_servers;
}

// " with --compress=none" where others were not held against each other.
std::string CompressHeld(const Comparison& comparison) {
  const std::set<std::string>& held = comparison.held_compress;
  return held.size() == comparison.values[AxisIndex("compress")].size()
             ? ""
             : absl::StrCat(" with --compress=", absl::StrJoin(held, ","));
}

void AddIdentical(const Comparison& comparison, Strings* findings) {
  if (!comparison.identical_weights) return;
  findings->push_back(absl::StrCat(
      Listing(SynchronousWays(comparison)), CompressHeld(comparison),
      *comparison.identical_weights
          ? absl::StrCat(
                " ended with identical weights (the same CRC-32) for every "
                "seed",
                comparison.failed.empty() && comparison.cut_short.empty()
                    ? ""
                    : " with which they finished",
                ": here the topology changes the speed and nothing else.")
          : " ended with DIFFERENT weights. They should not, unless a script "
            "does not seed itself from PSRING_SEED, continues from a "
            "checkpoint of the run before or computes on GPUs: both sum in the "
            "same order."));
}

void AddTraffic(const Comparison& comparison, Strings* findings) {
  const auto groups = GroupsAlong(comparison, kWayAxis);
  if (groups.size() > 1) return;  // the report's table has them all
  for (const Group& group : groups) {
    Strings parts;
    for (const Variant* variant : group.variants) {
      const WaySpec way = WayOf(variant->point);
      const auto formula = FormulaOf(*variant);
      if (!way.synchronous() || !formula) continue;
      parts.push_back(absl::StrCat(
          FormatBytes(std::max(formula->worker_bytes, formula->server_bytes)),
          " a step with ", way.name));
    }
    if (parts.size() < 2) continue;
    findings->push_back(Sentence(
        group, absl::StrCat("were every process a host of its own, the busiest "
                            "would send ",
                            Listing(parts), ".")));
  }
}

void AddStaleness(const Comparison& comparison, Strings* findings) {
  if (GroupsAlong(comparison, kWayAxis).size() > 1) return;
  for (const Variant& variant : comparison.variants) {
    if (WayOf(variant.point).synchronous()) continue;
    const Spread mean =
        SpreadOf(variant, [](const RunResult& r) { return r.staleness_mean; });
    const Spread worst = SpreadOf(variant, [](const RunResult& r) {
      return static_cast<double>(r.staleness_max);
    });
    findings->push_back(absl::StrFormat(
        "With %s a gradient missed %.2f updates by other workers on average "
        "and %.0f at worst.",
        variant.label, mean.mean, worst.max));
  }
}

// How well the predictor knows this machine.
void AddPrediction(const Comparison& comparison, Strings* findings) {
  const auto errors = ErrorsOfPredictions(comparison);
  if (!errors) return;
  findings->push_back(absl::StrFormat(
      "psring predict, told how long each worker computed, misses the measured "
      "step by %.1f%%%s.",
      100 * errors->median,
      errors->count == 1
          ? ""
          : absl::StrFormat(" in the median and by %.1f%% at most (%s)",
                            100 * errors->worst, errors->worst_label)));
}

// Whether no evaluation had a lower loss than the first step. Not where the run
// does not tell one of these.
bool LearnedNothing(const RunResult& run) {
  if (run.steps.empty() || run.steps[0].step > 1) return false;
  double best = std::nan("");
  for (const EpochSample& epoch : run.epochs) {
    best = std::fmin(best, epoch.test_loss);
  }
  return best >= run.steps[0].loss;
}

// Ways that differ by chance alone are compared in vain.
void AddNothingLearned(const Comparison& comparison, Strings* findings) {
  Strings labels;
  for (const Variant& variant : comparison.variants) {
    if (absl::c_all_of(variant.runs, LearnedNothing)) {
      labels.push_back(variant.label);
    }
  }
  if (labels.empty()) return;
  findings->push_back(absl::StrCat(
      Listing(labels), labels.size() == 1 ? " has" : " have",
      " learned nothing: no evaluation had a lower loss than the first step. A "
      "lower learning rate may help."));
}

// Whose times others' work has lengthened.
void AddOtherPrograms(const Comparison& comparison, Strings* findings) {
  const RunResult* most = nullptr;
  for (const Variant& variant : comparison.variants) {
    for (const RunResult& run : variant.runs) {
      if (!HeldUp(run)) continue;
      if (most == nullptr || *run.other_cores > *most->other_cores) most = &run;
    }
  }
  if (most == nullptr) return;
  findings->push_back(absl::StrFormat(
      "Other programs kept up to %.1f cores busy (during %s) while this host "
      "had none to spare: times differ for that reason, too.",
      *most->other_cores, RunLabel(most->point)));
}

// What is held against each other where an interrupted study lacks runs.
void AddSharedSeeds(const std::vector<Group>& groups, Strings* findings) {
  for (const Group& group : groups) {
    if (group.none_shared) {
      findings->push_back(
          Sentence(group,
                   "runs are missing, and the ways have finished no seed "
                   "in common: their figures are of different seeds."));
    }
    if (group.shared == nullptr) continue;
    Strings seeds;
    for (const RunResult& run : group.shared->front().runs) {
      seeds.push_back(ValueOf(run.point, "seed"));
    }
    findings->push_back(Sentence(
        group, absl::StrCat("runs are missing, so the ways are compared by the "
                            "seeds that all of them finished: ",
                            Listing(seeds), ".")));
  }
}

}  // namespace

Strings Findings(const Comparison& comparison) {
  Strings findings;
  const std::vector<Group> groups = ComparedAlong(comparison, kWayAxis);
  AddSharedSeeds(groups, &findings);
  AddNothingLearned(comparison, &findings);
  AddOtherPrograms(comparison, &findings);
  for (const Group& group : groups) {
    const std::string why = WhySentence(comparison, group);
    if (!why.empty()) findings.push_back(why);
    findings.push_back(EndSentence(comparison, group));
  }
  AddIdentical(comparison, &findings);
  AddTraffic(comparison, &findings);
  AddStaleness(comparison, &findings);
  AddPrediction(comparison, &findings);
  return findings;
}

}  // namespace psring
