#include "lab/study/study_charts.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

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

json LineJson(const Variant& variant, const std::string& label) {
  return {{"label", label},
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
          *variant, ValueLabel(axis, ValueOf(variant->point, axis.name))));
    }
    courses.push_back({{"title", group.label}, {"lines", std::move(lines)}});
  }
  for (const Variant& variant : comparison.variants) {
    if (drawn.contains(&variant)) continue;
    courses.push_back(
        {{"title", ""},
         {"lines", json::array({LineJson(variant, variant.label)})}});
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

json ScalingJson(const Comparison& comparison) {
  json scaling = json::array();
  for (const Axis& axis : Axes()) {
    if (axis.kind != AxisKind::kCounts) continue;
    json lines = json::array();
    for (const Group& group : GroupsAlong(comparison, axis.name)) {
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
      lines.push_back({{"label", label}, {"points", std::move(points)}});
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
