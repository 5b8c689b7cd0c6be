#include "lab/study/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "common/optim/compression.h"
#include "lab/study/way_spec.h"

namespace psring {
namespace {

// From the best: of it, or of how far its loss came.
constexpr double kFar = 0.1;
constexpr double kFarOfTheWay = 0.25;

// The variants in the order of the axes, whatever order the runs came in.
std::vector<Variant> GroupBySeed(const AxisValues& values,
                                 const std::vector<RunResult>& runs) {
  std::vector<Variant> variants;
  for (const Point& point : AllRuns(values)) {
    const auto known = [&](const Variant& v) {
      return SameBut(v.point, point, "");
    };
    if (std::any_of(variants.begin(), variants.end(), known)) continue;
    Variant variant{point, PointLabel(point, values), {}};
    for (const RunResult& run : runs) {
      if (SameBut(run.point, point, "")) variant.runs.push_back(run);
    }
    if (variant.runs.empty()) continue;
    if (variant.label.empty()) variant.label = ValueOf(point, kWayAxis);
    variants.push_back(std::move(variant));
  }
  return variants;
}

// The measure of the seed where it is worst; NaN where it is of one.
double WorstOf(const Goal& goal, const Variant& variant,
               const Measure& measure) {
  double worst = measure(variant.runs[0]);
  for (const RunResult& run : variant.runs) {
    const double value = measure(run);
    if (goal.IsBetter(worst, value)) worst = value;
  }
  return worst;
}

double Reach(const Goal& goal, const Variant& variant) {
  return WorstOf(goal, variant,
                 [&](const RunResult& run) { return goal.BestOf(run); });
}

double Rounded(const Goal& goal, double target) {
  // A hair aside, so that 0.9 does not become 0.899, in float32 either; less
  // than IsReachedBy's.
  constexpr double kHair = 5e-7;
  if (goal.score == Score::kAccuracy) {
    return std::floor((target + kHair) * 1000) / 1000;
  }
  if (target == 0) return 0;
  const double unit =
      std::pow(10, std::floor(std::log10(std::abs(target))) - 3);
  return std::ceil((target - kHair * std::abs(target)) / unit) * unit;
}

double CommonTarget(const Goal& goal, const std::vector<Variant>& variants) {
  const Variant* furthest = nullptr;
  double best = std::nan("");
  for (const Variant& variant : variants) {
    const double end = EndOf(goal, variant);
    if (!goal.IsBetter(end, best)) continue;
    best = end;
    furthest = &variant;
  }
  double target = std::nan("");
  for (const Variant& variant : variants) {
    const double end = EndOf(goal, variant);
    const double reach = Reach(goal, variant);
    if (std::isnan(reach)) continue;
    // Where none ends with a number, all count by how far they had come.
    if (furthest != nullptr &&
        (std::isnan(end) || Far(goal, end, best, *furthest))) {
      continue;
    }
    if (std::isnan(target) || goal.IsBetter(target, reach)) target = reach;
  }
  if (std::isnan(target)) return goal.score == Score::kAccuracy ? 0 : target;
  return Rounded(goal, target);
}

// Servers that take every step of a ring.
bool ServersSumAsRing(const WaySpec& way) {
  return way.has_servers() && way.synchronous() && way.plain();
}

bool IsPlainRing(const WaySpec& way) { return way.is_ring() && way.plain(); }

bool SumsInTheCanonicalOrder(const std::string& compress) {
  return compress == kNone || compress == "fp16" || compress == "bf16" ||
         compress == "int8";
}

// Sets what `comparison` says of identical weights. A run that has not told its
// own leaves it open whether all are, and hides no difference of others.
void HoldWeights(Comparison& comparison) {
  std::optional<bool> identical;
  bool all_told = true;
  for (const Variant& bsp : comparison.variants) {
    if (!ServersSumAsRing(WayOf(bsp.point))) continue;
    const std::string& compress = ValueOf(bsp.point, "compress");
    if (!SumsInTheCanonicalOrder(compress)) continue;
    for (const Variant& ring : comparison.variants) {
      if (!IsPlainRing(WayOf(ring.point))) continue;
      if (!SameBut(bsp.point, ring.point, kWayAxis)) continue;
      for (const RunResult& a : bsp.runs) {
        for (const RunResult& b : ring.runs) {
          if (ValueOf(a.point, "seed") != ValueOf(b.point, "seed")) continue;
          if (!a.weights_crc32 || !b.weights_crc32) {
            all_told = false;
            continue;
          }
          if (a.on_gpu || b.on_gpu) continue;
          identical =
              identical.value_or(true) && *a.weights_crc32 == *b.weights_crc32;
          comparison.held_compress.insert(compress);
          comparison.held_ways.insert(ValueOf(bsp.point, kWayAxis));
          comparison.held_ways.insert(ValueOf(ring.point, kWayAxis));
        }
      }
    }
  }
  if (all_told || identical == false) comparison.identical_weights = identical;
}

std::optional<Spread> OfFirstAt(
    const Comparison& comparison, const Variant& variant,
    const std::function<double(const EpochSample&)>& what) {
  const Goal& goal = comparison.goal;
  if (NumFailed(comparison, variant) > 0) return std::nullopt;
  for (const RunResult& run : variant.runs) {
    if (goal.FirstAt(run) == nullptr) return std::nullopt;
  }
  return SpreadOf(
      variant, [&](const RunResult& run) { return what(*goal.FirstAt(run)); });
}

// Whether it is known at which steps the target was reached.
bool KnowsSteps(const Comparison& comparison, const Variant& variant) {
  return std::all_of(variant.runs.begin(), variant.runs.end(),
                     [&](const RunResult& run) {
                       const EpochSample* at = comparison.goal.FirstAt(run);
                       return at != nullptr && at->step > 0;
                     });
}

// A ring stands in the group of every number of servers, and founds none that
// others can: it comes last.
std::vector<const Variant*> Founders(const Comparison& comparison,
                                     absl::string_view axis) {
  const size_t own = AxisIndex(axis);
  std::vector<const Variant*> founders;
  for (const Variant& variant : comparison.variants) {
    founders.push_back(&variant);
  }
  std::stable_partition(founders.begin(), founders.end(),
                        [&](const Variant* variant) {
                          for (size_t i = 0; i < variant->point.size(); ++i) {
                            if (i != own && variant->point[i] == kAny) {
                              return false;
                            }
                          }
                          return true;
                        });
  return founders;
}

}  // namespace

Spread SpreadOf(const Variant& variant, const Measure& measure) {
  Spread spread;
  for (size_t i = 0; i < variant.runs.size(); ++i) {
    const double value = measure(variant.runs[i]);
    spread.mean += value / static_cast<double>(variant.runs.size());
    spread.min = i == 0 ? value : std::min(spread.min, value);
    spread.max = i == 0 ? value : std::max(spread.max, value);
  }
  // What min and max make of it hangs on the order.
  if (std::isnan(spread.mean)) spread.min = spread.max = spread.mean;
  if (variant.runs.size() < 2) return spread;
  const auto degrees_of_freedom = static_cast<double>(variant.runs.size() - 1);
  for (const RunResult& run : variant.runs) {
    const double off = measure(run) - spread.mean;
    spread.variance += off * off / degrees_of_freedom;
  }
  return spread;
}

bool Meet(const Spread& a, const Spread& b) {
  return a.min <= b.max && b.min <= a.max;
}

Comparison Compare(AxisValues values, const std::vector<RunResult>& runs,
                   const Aim& aim, std::vector<FailedRun> failed,
                   bool every_step) {
  Comparison comparison;
  comparison.values = std::move(values);
  comparison.variants = GroupBySeed(comparison.values, runs);
  for (Variant& variant : comparison.variants) {
    variant.every_step = every_step;
  }
  Goal& goal = comparison.goal;
  goal.score = ScoreOf(aim, runs);
  goal.target = aim.target.has_value()
                    ? *aim.target
                    : CommonTarget(goal, comparison.variants);
  HoldWeights(comparison);
  comparison.failed = std::move(failed);
  return comparison;
}

double EndOf(const Goal& goal, const Variant& variant) {
  return WorstOf(goal, variant,
                 [&](const RunResult& run) { return goal.OfLast(run); });
}

bool Far(const Goal& goal, double value, double from, const Variant& variant) {
  double far = kFar * std::abs(from);
  if (goal.score == Score::kAccuracy) return value < from - far;
  for (const RunResult& run : variant.runs) {
    const double first = goal.Of(run.epochs[0]);
    if (!std::isfinite(first)) continue;
    far = std::max(far, kFarOfTheWay * (first - from));
  }
  return value > from + far;
}

bool CountsSteps(const Comparison& comparison) {
  return !comparison.variants.empty() &&
         comparison.variants[0].runs[0].counts_steps;
}

std::string RateUnit(const Comparison& comparison) {
  return CountsSteps(comparison) ? "steps/s" : "images/s";
}

std::optional<Spread> SecondsToTarget(const Comparison& comparison,
                                      const Variant& variant) {
  return OfFirstAt(comparison, variant,
                   [](const EpochSample& epoch) { return epoch.seconds; });
}

std::optional<Spread> StepsToTarget(const Comparison& comparison,
                                    const Variant& variant) {
  if (!KnowsSteps(comparison, variant)) return std::nullopt;
  return OfFirstAt(comparison, variant, [](const EpochSample& epoch) {
    return static_cast<double>(epoch.step);
  });
}

std::optional<Spread> StepSecondsToTarget(const Comparison& comparison,
                                          const Variant& variant) {
  if (!KnowsSteps(comparison, variant)) return std::nullopt;
  return OfFirstAt(comparison, variant, [](const EpochSample& epoch) {
    return epoch.seconds /
           static_cast<double>(std::max<int64_t>(1, epoch.step));
  });
}

int NumReached(const Comparison& comparison, const Variant& variant) {
  return static_cast<int>(std::count_if(
      variant.runs.begin(), variant.runs.end(), [&](const RunResult& run) {
        return comparison.goal.FirstAt(run) != nullptr;
      }));
}

int NumFailed(const Comparison& comparison, const Variant& variant) {
  return static_cast<int>(
      std::count_if(comparison.failed.begin(), comparison.failed.end(),
                    [&](const FailedRun& run) {
                      return SameBut(run.point, variant.point, "");
                    }));
}

std::vector<Group> GroupsAlong(const Comparison& comparison,
                               absl::string_view axis) {
  std::vector<Group> groups;
  std::vector<Point> done;
  for (const Variant* founder : Founders(comparison, axis)) {
    const Variant& first = *founder;
    const auto in_group = [&](const Point& p) {
      return SameBut(p, first.point, axis);
    };
    if (std::any_of(done.begin(), done.end(), in_group)) continue;
    Group group{PointLabel(first.point, comparison.values, axis), {}};
    for (const Variant& other : comparison.variants) {
      if (in_group(other.point)) group.variants.push_back(&other);
    }
    done.push_back(first.point);
    if (group.variants.size() > 1) groups.push_back(std::move(group));
  }
  return groups;
}

Group WithSharedSeeds(const Comparison& comparison, Group group) {
  const auto is_whole = [&](const Variant* variant) {
    return NumFailed(comparison, *variant) == 0;
  };
  const auto all_have = [&](const RunResult& run) {
    const std::string& seed = ValueOf(run.point, "seed");
    const auto has = [&](const RunResult& other) {
      return ValueOf(other.point, "seed") == seed;
    };
    return std::all_of(
        group.variants.begin(), group.variants.end(), [&](const Variant* v) {
          return !is_whole(v) ||
                 std::any_of(v->runs.begin(), v->runs.end(), has);
        });
  };
  std::vector<Variant> shared;
  size_t left_out = 0;
  for (const Variant* variant : group.variants) {
    if (!is_whole(variant)) continue;
    Variant& copy = shared.emplace_back(*variant);
    left_out += std::erase_if(
        copy.runs, [&](const RunResult& run) { return !all_have(run); });
  }
  group.none_shared = left_out > 0 && shared[0].runs.empty();
  if (left_out == 0 || group.none_shared) return group;
  group.shared = std::make_shared<const std::vector<Variant>>(shared);
  auto next = group.shared->begin();
  for (const Variant*& variant : group.variants) {
    if (is_whole(variant)) variant = &*next++;
  }
  return group;
}

std::vector<Group> ComparedAlong(const Comparison& comparison,
                                 absl::string_view axis) {
  std::vector<Group> groups = GroupsAlong(comparison, axis);
  for (Group& group : groups) {
    group = WithSharedSeeds(comparison, std::move(group));
  }
  return groups;
}

std::optional<TrafficFormula> FormulaOf(const Variant& variant) {
  const WaySpec way = WayOf(variant.point);
  const auto compression = ParseCompression(ValueOf(variant.point, "compress"));
  const auto values = static_cast<double>(variant.runs[0].num_parameters);
  // A script that psring's optimizers do not train tells of none.
  if (!compression.ok() || !way.plain() || !variant.every_step || values == 0) {
    return std::nullopt;
  }
  const double gradients = values * BytesPerValue(*compression);
  const double bytes = values * sizeof(float);
  const double n = std::stod(ValueOf(variant.point, "workers"));
  if (way.ddp) return std::nullopt;
  if (!way.has_servers()) {
    return TrafficFormula{(n - 1) / n * (gradients + bytes), 0};
  }
  const double servers = std::stod(ValueOf(variant.point, "servers"));
  return TrafficFormula{gradients, n * bytes / servers};
}

std::optional<StepPrediction> PredictionOf(const Variant& variant) {
  for (const RunResult& run : variant.runs) {
    if (!run.predicted_step_s || StepSeconds(run) <= 0) return std::nullopt;
  }
  const Spread predicted = SpreadOf(
      variant, [](const RunResult& run) { return *run.predicted_step_s; });
  return StepPrediction{predicted.mean, SpreadOf(variant, StepSeconds).mean};
}

}  // namespace psring
