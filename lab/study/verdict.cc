#include "lab/study/verdict.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lab/host/statistics.h"
#include "lab/page/format.h"
#include "lab/study/way_spec.h"

namespace psring {
namespace {

using Strings = std::vector<std::string>;

// With one seed nobody knows how far seeds scatter: less than this part of
// difference is not called one.
constexpr double kOneSeedMargin = 0.05;

// A variant beside the figure that it is judged by.
struct Entry {
  std::string name;
  Spread spread;
  bool one_seed;
};

bool Tied(const Entry& a, const Entry& b) {
  if (!a.one_seed || !b.one_seed) return Meet(a.spread, b.spread);
  const double larger = std::max(a.spread.mean, b.spread.mean);
  return std::abs(a.spread.mean - b.spread.mean) <= kOneSeedMargin * larger;
}

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
std::string Unreached(const Comparison& comparison, const Group& group,
                      const std::string& axis) {
  Strings parts;
  for (const Variant* variant : group.variants) {
    const int reached = NumReached(comparison, *variant);
    const int all = static_cast<int>(variant->runs.size());
    if (reached == all) continue;
    const double best = SpreadOf(*variant, BestAccuracy).max;
    std::string text =
        absl::StrCat(NameAlong(*variant, axis), " did not reach it");
    if (reached > 0) {
      absl::StrAppend(&text, " with ", all - reached, " of ", all, " seeds");
    } else {
      absl::StrAppend(&text, " (at best ", FormatPercent(best), ")");
    }
    parts.push_back(std::move(text));
  }
  return parts.empty() ? ""
                       : absl::StrCat(" ", absl::StrJoin(parts, "; "), ".");
}

// Of those that reached the target with every seed, the fastest first.
std::vector<Entry> Ranking(const Comparison& comparison, const Group& group,
                           const std::string& axis) {
  std::vector<Entry> entries;
  for (const Variant* variant : group.variants) {
    if (const auto spread = SecondsToTarget(comparison, *variant)) {
      entries.push_back(
          {NameAlong(*variant, axis), *spread, variant->runs.size() == 1});
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.spread.mean < b.spread.mean;
  });
  return entries;
}

// Who of the group reaches the target first, by how much, and who cannot be
// told from it.
std::string RankingSentence(const Comparison& comparison, const Group& group,
                            const std::string& axis) {
  const std::string target = FormatPercent(comparison.target_accuracy);
  const std::string unreached = Unreached(comparison, group, axis);
  const std::vector<Entry> entries = Ranking(comparison, group, axis);
  if (entries.empty()) {
    return absl::StrCat(
        Sentence(group, absl::StrCat("nothing reached ", target,
                                     " accuracy with every seed.")),
        unreached);
  }
  const Entry& first = entries[0];
  const char* with = axis == kWayAxis ? "" : "with ";
  Strings tied, slower;
  for (size_t i = 1; i < entries.size(); ++i) {
    const double times = entries[i].spread.mean / first.spread.mean;
    if (Tied(first, entries[i])) {
      tied.push_back(absl::StrCat(entries[i].name, " (",
                                  FormatSeconds(entries[i].spread.mean), ")"));
    } else {
      slower.push_back(absl::StrCat(FormatTimes(times), " times faster than ",
                                    with, entries[i].name));
    }
  }
  std::string text = absl::StrCat(
      target, " accuracy is reached ", slower.empty() ? "" : "first ",
      axis == kWayAxis ? "by " : with, first.name, ", after ",
      FormatSeconds(first.spread.mean), slower.empty() ? "" : ": ",
      Listing(slower), ".");
  if (!tied.empty()) {
    absl::StrAppend(
        &text, " ", Listing(tied), tied.size() == 1 ? " does" : " do",
        " not differ from it by more than ",
        first.one_seed ? "a single seed can tell." : "the seeds scatter.");
  }
  return absl::StrCat(Prefix(group), text, unreached);
}

// "1.20 times as fast", "as fast", "1.03 times as fast (no clear difference)".
std::string Compared(double ratio, bool tied, const char* as) {
  const std::string times = FormatTimes(ratio);
  if (times == FormatTimes(1)) return absl::StrCat("as ", as);
  return absl::StrCat(times, " times as ", as,
                      tied ? " (no clear difference)" : "");
}

// "ring 2.9 times as long"; nothing where the other did not reach the target.
std::string Effect(const Comparison& comparison, const Variant& base,
                   const Variant& other) {
  const auto before = SecondsToTarget(comparison, base);
  const auto now = SecondsToTarget(comparison, other);
  const std::string way = NameAlong(other, kWayAxis);
  if (!now) return absl::StrCat(way, " does not get there with every seed");
  if (!before || before->mean <= 0) return "";
  const bool one = base.runs.size() == 1 && other.runs.size() == 1;
  const bool tied = Tied({"", *before, one}, {"", *now, one});
  return absl::StrCat(way, " takes ",
                      Compared(now->mean / before->mean, tied, "long"));
}

// What another value of the axis than its first does to every way, a sentence
// for each value and each set of circumstances.
void AddEffects(const Comparison& comparison, const Axis& axis,
                Strings* headlines) {
  const Strings& values = comparison.values[AxisIndex(axis.name)];
  for (const Group& ways : GroupsAlong(comparison, kWayAxis)) {
    const std::string& value = ValueOf(ways.variants[0]->point, axis.name);
    if (value == values[0]) continue;
    Strings effects;
    for (const Variant* other : ways.variants) {
      for (const Variant& base : comparison.variants) {
        if (ValueOf(base.point, axis.name) != values[0] ||
            !SameBut(base.point, other->point, axis.name)) {
          continue;
        }
        const std::string effect = Effect(comparison, base, *other);
        if (!effect.empty()) effects.push_back(effect);
      }
    }
    if (effects.empty()) continue;
    headlines->push_back(absl::StrCat(
        ways.label, ", against ", ValueLabel(axis, values[0]), ": to ",
        FormatPercent(comparison.target_accuracy), " ", Listing(effects), "."));
  }
}

Spread SecondsPerStep(const Variant& variant) {
  return SpreadOf(variant, StepSeconds);
}

// How speed per step and number of steps make up the time to the target.
std::string WhySentence(const Comparison& comparison, const Group& group) {
  const Variant& base = *group.variants[0];
  const auto base_steps = StepsToTarget(comparison, base);
  const Spread base_time = SecondsPerStep(base);
  if (!base_steps || base_time.mean <= 0) return "";
  Strings parts;
  for (size_t i = 1; i < group.variants.size(); ++i) {
    const Variant& other = *group.variants[i];
    const auto steps = StepsToTarget(comparison, other);
    const Spread time = SecondsPerStep(other);
    if (!steps || time.mean <= 0) continue;
    const bool one = base.runs.size() == 1 && other.runs.size() == 1;
    const bool as_fast = Tied({"", base_time, one}, {"", time, one});
    const bool as_many =
        one ? base_steps->mean == steps->mean : Meet(*base_steps, *steps);
    parts.push_back(absl::StrCat(
        NameAlong(other, kWayAxis), " is ",
        Compared(base_time.mean / time.mean, as_fast, "fast"),
        " per step and needs ",
        Compared(steps->mean / base_steps->mean, as_many, "many"), " steps"));
  }
  if (parts.empty()) return "";
  return Sentence(group, absl::StrCat("against ", NameAlong(base, kWayAxis),
                                      ", ", absl::StrJoin(parts, "; "), "."));
}

std::string AccuracySentence(const Group& group) {
  std::vector<Entry> entries;
  for (const Variant* variant : group.variants) {
    entries.push_back(
        {NameAlong(*variant, kWayAxis),
         SpreadOf(*variant,
                  [](const RunResult& run) { return run.test_accuracy; }),
         variant->runs.size() == 1});
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) {
                     return a.spread.mean > b.spread.mean;
                   });
  Strings parts;
  for (const Entry& entry : entries) {
    std::string range = FormatPercent(entry.spread.mean);
    if (entry.spread.min < entry.spread.max) {
      absl::StrAppend(&range, " (", FormatPercent(entry.spread.min), " to ",
                      FormatPercent(entry.spread.max), ")");
    }
    parts.push_back(absl::StrCat(entry.name, " ", range));
  }
  return Sentence(
      group, absl::StrCat("the final accuracies are ", Listing(parts), "."));
}

void AddIdentical(const Comparison& comparison, Strings* findings) {
  if (!comparison.identical_weights) return;
  findings->push_back(
      *comparison.identical_weights
          ? "ps-bsp and ring ended with identical weights (the same CRC-32) "
            "for every seed: here the topology changes the speed and nothing "
            "else."
          : "ps-bsp and ring ended with DIFFERENT weights. They should not: "
            "both sum in the same order.");
}

void AddTraffic(const Comparison& comparison, Strings* findings) {
  const auto groups = GroupsAlong(comparison, kWayAxis);
  if (groups.size() > 1) return;  // the report's table has them all
  for (const Group& group : groups) {
    Strings parts;
    for (const Variant* variant : group.variants) {
      const std::string& way = ValueOf(variant->point, kWayAxis);
      const auto formula = FormulaOf(*variant);
      if ((way != "ps-bsp" && way != "ring") || !formula) continue;
      parts.push_back(absl::StrCat(
          FormatBytes(std::max(formula->worker_bytes, formula->server_bytes)),
          " a step with ", way));
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
    const auto spec = ParseWays(ValueOf(variant.point, kWayAxis));
    if (!spec.ok() || spec->front().sync.empty() ||
        spec->front().sync == "bsp") {
      continue;
    }
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
  std::vector<double> errors;
  double worst = -1;
  std::string label;
  for (const Variant& variant : comparison.variants) {
    const auto prediction = PredictionOf(variant);
    if (!prediction) continue;
    errors.push_back(std::abs(prediction->error()));
    if (errors.back() < worst) continue;
    worst = errors.back();
    label = variant.label;
  }
  if (errors.empty()) return;
  findings->push_back(absl::StrFormat(
      "psring predict, told how long each worker computed, misses the measured "
      "step by %.1f%%%s.",
      100 * Median(errors),
      errors.size() == 1
          ? ""
          : absl::StrFormat(" in the median and by %.1f%% at most (%s)",
                            100 * worst, label)));
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
    for (const Group& group : GroupsAlong(comparison, axis.name)) {
      headlines.push_back(RankingSentence(comparison, group, axis.name));
    }
  }
  return headlines;
}

Strings Findings(const Comparison& comparison) {
  Strings findings;
  for (const Group& group : GroupsAlong(comparison, kWayAxis)) {
    const std::string why = WhySentence(comparison, group);
    if (!why.empty()) findings.push_back(why);
    findings.push_back(AccuracySentence(group));
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

}  // namespace psring
