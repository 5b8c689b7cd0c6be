#include "lab/study/verdict.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lab/page/format.h"
#include "lab/study/contrast.h"
#include "lab/study/study_progress.h"
#include "lab/study/way_spec.h"

namespace psring {
namespace {

using Strings = std::vector<std::string>;

// "a", "a and b", "a, b and c".
std::string Listing(const Strings& names) {
  if (names.size() < 2) return absl::StrJoin(names, "");
  const Strings first(names.begin(), names.end() - 1);
  return absl::StrCat(absl::StrJoin(first, ", "), " and ", names.back());
}

// What tells the variant from the others along the axis.
std::string NameAlong(const Variant& variant, const std::string& axis) {
  return ValueLabel(AxisOf(axis), ValueOf(variant.point, axis));
}

std::string Prefix(const Group& group) {
  return group.label.empty() ? "" : absl::StrCat(group.label, ": ");
}

// A sentence of the group's, which begins with no name.
std::string Sentence(const Group& group, const std::string& lower_case) {
  if (!group.label.empty()) return absl::StrCat(Prefix(group), lower_case);
  std::string sentence = lower_case;
  sentence[0] = absl::ascii_toupper(static_cast<unsigned char>(sentence[0]));
  return sentence;
}

// Those that did not reach the target with every seed.
std::string Unreached(const Comparison& comparison, const Ranking& ranking,
                      const std::string& axis) {
  Strings parts;
  for (const Variant* variant : ranking.unreached) {
    const int reached = NumReached(comparison, *variant);
    const int ran = static_cast<int>(variant->runs.size());
    const int failed = NumFailed(comparison, *variant);
    std::string text = NameAlong(*variant, axis);
    if (failed > 0) {
      absl::StrAppend(&text, " failed with ", failed, " of ", ran + failed,
                      " seeds");
    }
    if (reached == ran) {
      parts.push_back(std::move(text));
      continue;
    }
    absl::StrAppend(&text, failed > 0 ? " and" : "", " did not reach it");
    if (reached > 0) {
      absl::StrAppend(&text, " with ", ran - reached, " of ", ran + failed,
                      " seeds");
    } else {
      const Goal& goal = comparison.goal;
      double best = std::nan("");
      for (const RunResult& run : variant->runs) {
        if (goal.IsBetter(goal.BestOf(run), best)) best = goal.BestOf(run);
      }
      absl::StrAppend(&text, " (at best ", goal.Text(best), ")");
    }
    parts.push_back(std::move(text));
  }
  return parts.empty() ? ""
                       : absl::StrCat(" ", absl::StrJoin(parts, "; "), ".");
}

// Who of the group reaches the target first, by how much, and who cannot be
// told from it.
std::string RankingSentence(const Comparison& comparison, const Group& group,
                            const std::string& axis) {
  const std::string target = comparison.goal.TargetText();
  const Ranking ranking = RankBySeconds(comparison, group);
  const std::string unreached = Unreached(comparison, ranking, axis);
  if (ranking.reached.empty()) {
    return absl::StrCat(Sentence(group, absl::StrCat("nothing reached ", target,
                                                     " with every seed.")),
                        unreached);
  }
  const Rated& first = ranking.reached[0];
  const char* with = axis == kWayAxis ? "" : "with ";
  Strings tied, slower;
  for (size_t i = 1; i < ranking.reached.size(); ++i) {
    const Rated& other = ranking.reached[i];
    const std::string name = NameAlong(*other.variant, axis);
    if (Tied(first, other)) {
      tied.push_back(
          absl::StrCat(name, " (", FormatSeconds(other.spread.mean), ")"));
    } else {
      slower.push_back(
          absl::StrCat(FormatTimes(other.spread.mean / first.spread.mean),
                       " times faster than ", with, name));
    }
  }
  std::string text = absl::StrCat(
      target, " is reached ", slower.empty() ? "" : "first ",
      axis == kWayAxis ? "by " : with, NameAlong(*first.variant, axis),
      ", after ", FormatSeconds(first.spread.mean), slower.empty() ? "" : ": ",
      Listing(slower), ".");
  if (!tied.empty()) {
    absl::StrAppend(&text, " ", Listing(tied),
                    tied.size() == 1 ? " does" : " do",
                    " not differ from it by more than ",
                    first.variant->runs.size() == 1 ? "a single seed can tell."
                                                    : "the seeds scatter.");
  }
  return absl::StrCat(Sentence(group, text), unreached);
}

// "1.20 times as fast", "as fast", "1.03 times as fast (no clear difference)".
std::string Compared(const Ratio& ratio, const char* as) {
  const std::string times = FormatTimes(ratio.times);
  if (times == FormatTimes(1)) return absl::StrCat("as ", as);
  return absl::StrCat(times, " times as ", as,
                      ratio.tied ? " (no clear difference)" : "");
}

// "ring takes 2.9 times as long".
std::string Effect(const Comparison& comparison, const Variant& base,
                   const Variant& other) {
  const std::string way = NameAlong(other, kWayAxis);
  const bool base_reaches = SecondsToTarget(comparison, base).has_value();
  if (!SecondsToTarget(comparison, other)) {
    return absl::StrCat(
        way, base_reaches ? " does not get there with every seed"
                          : " gets there with every seed in neither case");
  }
  if (!base_reaches) {
    return absl::StrCat(
        way, " gets there with every seed, which it does not otherwise");
  }
  const auto ratio = SecondsRatio(comparison, base, other);
  return ratio ? absl::StrCat(way, " takes ", Compared(*ratio, "long")) : "";
}

// What another value of the axis than its first does to every way, a sentence
// for each value and each set of circumstances.
void AddEffects(const Comparison& comparison, const Axis& axis,
                Strings* headlines) {
  const std::string& first = comparison.values[AxisIndex(axis.name)][0];
  for (const Group& ways : GroupsAlong(comparison, kWayAxis)) {
    Strings effects;
    for (const Variant* other : ways.variants) {
      const Variant* base = BaseOf(comparison, *other, axis.name);
      if (base == nullptr) continue;
      const std::string effect = Effect(comparison, *base, *other);
      if (!effect.empty()) effects.push_back(effect);
    }
    if (effects.empty()) continue;
    headlines->push_back(absl::StrCat(
        ways.label, ", against ", ValueLabel(axis, first), ": to ",
        comparison.goal.TargetText(), ", ", Listing(effects), "."));
  }
}

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

std::string EndSentence(const Comparison& comparison, const Group& group) {
  const Goal& goal = comparison.goal;
  Strings parts;
  for (const auto& [variant, end] : RankByEnd(goal, group)) {
    std::string range = goal.Text(end.mean);
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
            "does not seed itself from PSRING_SEED or computes on GPUs: both "
            "sum in the same order."));
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

// Whose times others' work has lengthened.
void AddOtherPrograms(const Comparison& comparison, Strings* findings) {
  constexpr double kMuch = 0.1;  // of a core
  const RunResult* most = nullptr;
  for (const Variant& variant : comparison.variants) {
    for (const RunResult& run : variant.runs) {
      const double least = most == nullptr ? kMuch : *most->other_cores;
      if (run.other_cores.value_or(0) > least) most = &run;
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

bool Varies(const Comparison& comparison, const Axis& axis) {
  return axis.kind != AxisKind::kSeeds &&
         comparison.values[AxisIndex(axis.name)].size() > 1;
}

}  // namespace

Strings Questions(const Comparison& comparison) {
  Strings questions;
  for (const Axis& axis : Axes()) {
    if (Varies(comparison, axis)) questions.push_back(axis.question);
  }
  if (comparison.goal.score == Score::kTestLoss) {
    for (std::string& question : questions) {
      absl::StrReplaceAll({{"accuracy", "loss"}}, &question);
    }
  }
  if (questions.empty()) questions.push_back("How does this training go?");
  return questions;
}

Strings Headlines(const Comparison& comparison) {
  Strings headlines;
  const bool ways_vary = Varies(comparison, AxisOf(kWayAxis));
  for (const Axis& axis : Axes()) {
    if (!Varies(comparison, axis)) continue;
    if (axis.kind != AxisKind::kWays && ways_vary) {
      AddEffects(comparison, axis, &headlines);
      continue;
    }
    for (const Group& group : ComparedAlong(comparison, axis.name)) {
      headlines.push_back(RankingSentence(comparison, group, axis.name));
    }
  }
  return headlines;
}

Strings Findings(const Comparison& comparison) {
  Strings findings;
  const std::vector<Group> groups = ComparedAlong(comparison, kWayAxis);
  AddSharedSeeds(groups, &findings);
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

Strings Verdicts(const Comparison& comparison) {
  Strings verdicts = Headlines(comparison);
  for (std::string& finding : Findings(comparison)) {
    verdicts.push_back(std::move(finding));
  }
  return verdicts;
}

Strings Faults(const Comparison& comparison) {
  Strings faults;
  for (const char* axis : {"slow", "link"}) {
    for (const std::string& spec : comparison.values[AxisIndex(axis)]) {
      if (spec == kNone) continue;
      faults.push_back(absl::StrCat("--", axis, "=", spec));
    }
  }
  return faults;
}

Strings Failures(const Comparison& comparison) {
  Strings failures;
  for (const FailedRun& run : comparison.failed) {
    // How the process ended, and what it said last: why, unless it was killed.
    const std::vector<absl::string_view> lines =
        absl::StrSplit(run.why, '\n', absl::SkipWhitespace());
    std::string failure = absl::StrCat(
        RunLabel(run.point), ": ",
        lines.empty() ? "" : absl::StripSuffix(lines[0], "; its last lines:"));
    if (lines.size() > 1) {
      absl::StrAppend(&failure, "; ", absl::StripAsciiWhitespace(lines.back()));
    }
    failures.push_back(std::move(failure));
  }
  return failures;
}

}  // namespace psring
