#include "lab/study/study_charts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lab/study/curves.h"

namespace psring {
namespace {

using nlohmann::json;

constexpr int kLossPoints = 120;

json BandJson(const std::vector<BandPoint>& band) {
  json points = json::array();
  for (const BandPoint& point : band) {
    json value = SpreadJson(point.value);
    value["step"] = point.step;
    value["seconds"] = point.seconds;
    points.push_back(std::move(value));
  }
  return points;
}

// The same of a value of the axis in all pictures, also where others failed.
size_t LookOf(const Comparison& comparison, const Axis& axis,
              const Variant& variant) {
  const auto& values = comparison.values[AxisIndex(axis.name)];
  const std::string& value = ValueOf(variant.point, axis.name);
  const auto found = std::find(values.begin(), values.end(), value);
  return found == values.end() ? 0 : found - values.begin();
}

json LineJson(const Variant& variant, const std::string& label, size_t look) {
  return {{"label", label},
          {"look", look},
          {"seeds", variant.runs.size()},
          {"accuracy", BandJson(AccuracyBand(variant))},
          {"loss", BandJson(LossBand(variant, kLossPoints))},
          {"test_loss", BandJson(TestLossBand(variant))}};
}

// The axis whose values are the lines of one picture: the way, or the first
// other one that varies where there is one way.
const Axis& LineAxis(const Comparison& comparison) {
  for (const Axis& axis : Axes()) {
    if (axis.kind == AxisKind::kSeeds) continue;
    if (comparison.values[AxisIndex(axis.name)].size() > 1) return axis;
  }
  return AxisOf(kWayAxis);
}

// A picture for each set of circumstances, and for each variant that is alone
// in its own, as where the others have failed.
json CoursesJson(const Comparison& comparison) {
  const Axis& axis = LineAxis(comparison);
  json courses = json::array();
  std::set<const Variant*> drawn;
  for (const Group& group : GroupsAlong(comparison, axis.name)) {
    json lines = json::array();
    for (const Variant* variant : group.variants) {
      drawn.insert(variant);
      lines.push_back(LineJson(
          *variant, ValueLabel(axis, ValueOf(variant->point, axis.name)),
          LookOf(comparison, axis, *variant)));
    }
    courses.push_back({{"title", group.label}, {"lines", std::move(lines)}});
  }
  for (const Variant& variant : comparison.variants) {
    if (drawn.contains(&variant)) continue;
    courses.push_back({{"title", ""},
                       {"lines", json::array({LineJson(
                                     variant, variant.label,
                                     LookOf(comparison, axis, variant))})}});
  }
  return courses;
}

json RatesJson(const Comparison& comparison) {
  json rates = json::array();
  for (const Variant& variant : comparison.variants) {
    json rate = SpreadJson(SpreadOf(
        variant, [](const RunResult& run) { return run.images_per_second; }));
    rate["label"] = variant.label;
    rates.push_back(std::move(rate));
  }
  return rates;
}

// Groups in the order of their first variants, and whether they differ in their
// ways: then lines look as the ways do elsewhere.
std::pair<std::vector<Group>, bool> LinesAlong(const Comparison& comparison,
                                               const Axis& axis) {
  std::vector<Group> groups = GroupsAlong(comparison, axis.name);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) {
                     return a.variants[0] < b.variants[0];
                   });
  std::set<std::string> ways;
  for (const Group& group : groups) {
    ways.insert(ValueOf(group.variants[0]->point, kWayAxis));
  }
  const bool differ = ways.size() == groups.size();
  return {std::move(groups), differ};
}

json ScalingJson(const Comparison& comparison) {
  json scaling = json::array();
  for (const Axis& axis : Axes()) {
    if (axis.kind != AxisKind::kCounts) continue;
    json lines = json::array();
    const auto [groups, ways_differ] = LinesAlong(comparison, axis);
    for (const Group& group : groups) {
      json points = json::array();
      for (const Variant* variant : group.variants) {
        int x = 0;
        if (!absl::SimpleAtoi(ValueOf(variant->point, axis.name), &x)) continue;
        points.push_back(
            {{"x", x},
             {"rate", SpreadJson(SpreadOf(*variant,
                                          [](const RunResult& run) {
                                            return run.images_per_second;
                                          }))},
             {"seconds", SpreadJson(SecondsToTarget(comparison, *variant))}});
      }
      const std::string label =
          group.label.empty() ? ValueOf(group.variants[0]->point, kWayAxis)
                              : group.label;
      const size_t look =
          ways_differ ? LookOf(comparison, AxisOf(kWayAxis), *group.variants[0])
                      : lines.size();
      lines.push_back(
          {{"label", label}, {"look", look}, {"points", std::move(points)}});
    }
    if (lines.empty()) continue;
    scaling.push_back({{"axis", axis.name}, {"lines", std::move(lines)}});
  }
  return scaling;
}

bool AnyIsStale(const StalenessHistogram& histogram) {
  for (const auto& [rank, counts] : histogram) {
    for (size_t i = 1; i < counts.size(); ++i) {
      if (counts[i] > 0) return true;
    }
  }
  return false;
}

// Over all seeds; without the ways in which nothing ever was stale.
json StalenessJson(const Comparison& comparison) {
  json all = json::array();
  for (const Variant& variant : comparison.variants) {
    StalenessHistogram sum;
    for (const RunResult& run : variant.runs) {
      for (const auto& [rank, counts] : run.staleness_histogram) {
        std::vector<int64_t>& bins = sum[rank];
        bins.resize(std::max(bins.size(), counts.size()));
        for (size_t i = 0; i < counts.size(); ++i) bins[i] += counts[i];
      }
    }
    if (!AnyIsStale(sum)) continue;
    json workers = json::array();
    for (const auto& [rank, counts] : sum) {
      workers.push_back({{"rank", rank}, {"counts", counts}});
    }
    all.push_back({{"label", variant.label}, {"workers", std::move(workers)}});
  }
  return all;
}

// Over all workers and seeds.
json StepTimesJson(const Comparison& comparison) {
  json all = json::array();
  for (const Variant& variant : comparison.variants) {
    StepTime sum;
    int count = 0;
    for (const RunResult& run : variant.runs) {
      for (const auto& [rank, time] : run.step_times) {
        sum.compute += time.compute;
        sum.exposed += time.exposed;
        sum.wait += time.wait;
        ++count;
      }
    }
    if (count == 0) continue;
    all.push_back({{"label", variant.label},
                   {"compute", sum.compute / count},
                   {"exposed", sum.exposed / count},
                   {"wait", sum.wait / count}});
  }
  return all;
}

}  // namespace

json SpreadJson(const std::optional<Spread>& spread) {
  if (!spread) return json();
  return {{"mean", spread->mean}, {"min", spread->min}, {"max", spread->max}};
}

json ChartsJson(const Comparison& comparison) {
  const Goal& goal = comparison.goal;
  return {{"target", goal.target},
          {"target_text", goal.TargetText()},
          {"by_loss", goal.score == Score::kTestLoss},
          {"courses", CoursesJson(comparison)},
          {"rates", RatesJson(comparison)},
          {"rate_unit", RateUnit(comparison)},
          {"rate_title",
           CountsSteps(comparison) ? "Steps a second" : "Images a second"},
          {"scaling", ScalingJson(comparison)},
          {"staleness", StalenessJson(comparison)},
          {"step_times", StepTimesJson(comparison)}};
}

}  // namespace psring
