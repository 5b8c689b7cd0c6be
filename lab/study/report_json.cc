#include "lab/study/report_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "lab/page/report_parts.h"
#include "lab/study/study_charts.h"
#include "lab/study/verdict.h"

namespace psring {
namespace {

using nlohmann::json;

json FormulaJson(const Variant& variant) {
  const auto formula = FormulaOf(variant);
  if (!formula) return json();
  return {{"worker_bytes_per_step", formula->worker_bytes},
          {"server_bytes_per_step", formula->server_bytes}};
}

json PredictionJson(const Variant& variant) {
  const auto prediction = PredictionOf(variant);
  if (!prediction) return json();
  return {{"step_seconds", prediction->predicted_s},
          {"measured_step_seconds", prediction->measured_s},
          {"error", prediction->error()}};
}

json VariantJson(const Comparison& comparison, const Variant& variant) {
  json point = PointJson(variant.point);
  point.erase("seed");
  json seeds = json::array();
  for (const RunResult& run : variant.runs) {
    seeds.push_back(ValueOf(run.point, "seed"));
  }
  using Run = const RunResult&;
  const auto spread = [&](Measure measure) {
    return SpreadJson(SpreadOf(variant, measure));
  };
  return {
      {"label", variant.label},
      {"point", std::move(point)},
      {"seeds", std::move(seeds)},
      {"reached", NumReached(comparison, variant)},
      {"failed", NumFailed(comparison, variant)},
      {"images_per_second", spread([](Run r) { return r.images_per_second; })},
      {"test_accuracy", spread([](Run r) { return r.test_accuracy; })},
      {"test_loss", spread([](Run r) { return r.test_loss; })},
      {"seconds_to_target", SpreadJson(SecondsToTarget(comparison, variant))},
      {"steps_to_target", SpreadJson(StepsToTarget(comparison, variant))},
      {"formula", FormulaJson(variant)},
      {"prediction", PredictionJson(variant)},
  };
}

}  // namespace

json ToJson(const StudySetup& setup, const Comparison& comparison) {
  json axes = json::object();
  for (size_t i = 0; i < Axes().size(); ++i) {
    axes[Axes()[i].name] = comparison.values[i];
  }
  json variants = json::array();
  json runs = json::array();
  for (const Variant& variant : comparison.variants) {
    variants.push_back(VariantJson(comparison, variant));
    for (const RunResult& run : variant.runs) runs.push_back(ToJson(run));
  }
  const auto& identical = comparison.identical_weights;
  const bool by_loss = comparison.goal.score == Score::kTestLoss;
  return {
      {"schema", "psring-report-2"},
      {"setup", SetupJson(setup)},
      {"machine", MachineJson(setup.machine)},
      {"axes", std::move(axes)},
      {"questions", Questions(comparison)},
      {"verdicts", Verdicts(comparison)},
      {"faults", Faults(comparison)},
      {"failed_runs", Failures(comparison)},
      {"cut_short", comparison.cut_short},
      {by_loss ? "target_loss" : "target_accuracy", comparison.goal.target},
      {"identical_weights", identical ? json(*identical) : json()},
      {"variants", std::move(variants)},
      {"runs", std::move(runs)},
  };
}

}  // namespace psring
