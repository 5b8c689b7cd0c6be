#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lab/page/format.h"
#include "lab/study/contrast.h"
#include "lab/study/verdict.h"
#include "lab/study/wording.h"

namespace psring {
namespace {

using Strings = std::vector<std::string>;

// What became of one of whose seeds some did not reach the target: "did not
// reach it (at best 50.00%)".
std::string Missed(const Goal& goal, const Variant& variant, int reached,
                   int seeds) {
  const int missed = static_cast<int>(variant.runs.size()) - reached;
  if (reached > 0) {
    return absl::StrCat("did not reach it with ", missed, " of ", seeds,
                        " seeds");
  }
  double best = std::nan("");
  for (const RunResult& run : variant.runs) {
    if (goal.IsBetter(goal.BestOf(run), best)) best = goal.BestOf(run);
  }
  if (std::isnan(best)) return absl::StrCat("tells no ", goal.name());
  return absl::StrCat("did not reach it (at best ", goal.Text(best), ")");
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
    absl::StrAppend(&text, failed > 0 ? " and " : " ",
                    Missed(comparison.goal, *variant, reached, ran + failed));
    parts.push_back(std::move(text));
  }
  return parts.empty() ? ""
                       : absl::StrCat(" ", absl::StrJoin(parts, "; "), ".");
}

// ", but training ends at 10.00% with ring": those that reach the target and
// end far from it.
std::string EndsFar(const Goal& goal, const Ranking& ranking,
                    const std::string& axis) {
  Strings ends;
  for (const Rated& reached : ranking.reached) {
    const Variant& variant = *reached.variant;
    const double end = EndOf(goal, variant);
    const bool finite = std::isfinite(end);
    if (finite && !Far(goal, end, goal.target, variant)) continue;
    ends.push_back(absl::StrCat(
        "at ", finite ? goal.Text(end) : "no finite number", " with ",
        variant.runs.size() > 1 ? "a seed of " : "", NameAlong(variant, axis)));
  }
  return ends.empty() ? ""
                      : absl::StrCat(", but training ends ", Listing(ends));
}

// What is to be known of so many ratios of the times of these variants.
std::string Caution(const std::vector<const Variant*>& variants,
                    size_t num_ratios) {
  const bool held_up =
      std::any_of(variants.begin(), variants.end(),
                  [](const Variant* variant) { return HeldUp(*variant); });
  if (!held_up || num_ratios == 0) return "";
  return absl::StrCat(" Other programs held up some of these runs, so ",
                      num_ratios == 1 ? "the ratio is" : "the ratios are",
                      " uncertain.");
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
  std::vector<const Variant*> in_ratios = {first.variant};
  for (size_t i = 1; i < ranking.reached.size(); ++i) {
    const Rated& other = ranking.reached[i];
    const std::string name = NameAlong(*other.variant, axis);
    if (Tied(first, other, ranking.reached.size() - 1)) {
      tied.push_back(
          absl::StrCat(name, " (", FormatSeconds(other.spread.mean), ")"));
    } else {
      slower.push_back(
          absl::StrCat(FormatTimes(other.spread.mean / first.spread.mean),
                       " times faster than ", with, name));
      in_ratios.push_back(other.variant);
    }
  }
  std::string text = absl::StrCat(
      target, " is reached ", slower.empty() ? "" : "first ",
      axis == kWayAxis ? "by " : with, NameAlong(*first.variant, axis),
      ", after ", FormatSeconds(first.spread.mean), slower.empty() ? "" : ": ",
      Listing(slower), EndsFar(comparison.goal, ranking, axis), ".");
  if (!tied.empty()) {
    absl::StrAppend(&text, " ", Listing(tied),
                    tied.size() == 1 ? " does" : " do",
                    " not differ from it by more than ",
                    first.variant->runs.size() == 1 ? "a single seed can tell."
                                                    : "the seeds scatter.");
  }
  return absl::StrCat(Sentence(group, text), unreached,
                      Caution(in_ratios, slower.size()));
}

// "ring takes 2.9 times as long"; `num_compared`: as Tied's.
std::string Effect(const Comparison& comparison, const Variant& base,
                   const Variant& other, size_t num_compared) {
  const std::string way = NameAlong(other, kWayAxis);
  const bool base_reaches = SecondsToTarget(comparison, base).has_value();
  if (!SecondsToTarget(comparison, other)) {
    return absl::StrCat(way, " does not get there with every seed",
                        base_reaches ? "" : " in either case");
  }
  if (!base_reaches) {
    return absl::StrCat(way, " gets there with every seed only in this case");
  }
  const auto ratio = SecondsRatio(comparison, base, other, num_compared);
  return ratio ? absl::StrCat(way, " takes ", Compared(*ratio, "long")) : "";
}

// What another value of the axis than its first does to every way, a sentence
// for each value and each set of circumstances.
void AddEffects(const Comparison& comparison, const Axis& axis,
                Strings* headlines) {
  const std::string& first = comparison.values[AxisIndex(axis.name)][0];
  for (const Group& ways : GroupsAlong(comparison, kWayAxis)) {
    Strings effects;
    std::vector<const Variant*> in_ratios;
    for (const Variant* other : ways.variants) {
      const Variant* base = BaseOf(comparison, *other, axis.name);
      if (base == nullptr) continue;
      const std::string effect =
          Effect(comparison, *base, *other, ways.variants.size());
      if (effect.empty()) continue;
      effects.push_back(effect);
      if (SecondsToTarget(comparison, *base) &&
          SecondsToTarget(comparison, *other)) {
        in_ratios.insert(in_ratios.end(), {base, other});
      }
    }
    if (effects.empty()) continue;
    headlines->push_back(
        absl::StrCat(ways.label, ", against ", ValueLabel(axis, first), ": to ",
                     comparison.goal.TargetText(), ", ", Listing(effects), ".",
                     Caution(in_ratios, in_ratios.size() / 2)));
  }
}

}  // namespace

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

}  // namespace psring
