// What `psring compare` found out, as numbers: pure arithmetic on runs.
#ifndef PSRING_LAB_STUDY_COMPARISON_H_
#define PSRING_LAB_STUDY_COMPARISON_H_

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/study/goal.h"
#include "lab/study/run_result.h"
#include "lab/study/study_axes.h"

namespace psring {

// Over the runs of one variant, which differ in their seeds; NaN where one is.
struct Spread {
  double mean = 0;
  double min = 0;
  double max = 0;
  double variance = 0;  // of a sample; 0 of one run
};

// Runs that differ in nothing but the seed.
struct Variant {
  Point point;        // with the first run's seed
  std::string label;  // "ring, 4 workers": what tells it from the others
  std::vector<RunResult> runs;
  bool every_step = true;  // exchanges gradients, whatever its way says
};

using Measure = std::function<double(const RunResult&)>;
Spread SpreadOf(const Variant& variant, const Measure& measure);

// Whether two of them cannot be told apart by these seeds: their ranges meet.
bool Meet(const Spread& a, const Spread& b);

struct Comparison {
  AxisValues values;
  std::vector<Variant> variants;  // as the axes are given, the way fastest
  Goal goal;
  // Whether synchronous servers always ended with the weights (their CRC-32) of
  // the ring of the same seed; nothing unless there are such pairs. Those with
  // a run on GPUs do not count: NCCL has an order of its own.
  std::optional<bool> identical_weights;
  // Of those pairs: their ways, and how gradients were compressed.
  std::set<std::string> held_ways;
  std::set<std::string> held_compress;
  std::vector<FailedRun> failed;  // not among the variants' runs
  // "7 of 12 runs", of a study that ended early; empty: it did not.
  std::string cut_short = {};
};

// Groups the runs. `aim`: what times count to. Without a target of its own it
// is what the variants reach with every seed, leaving out those that end, with
// their worst seed, far (see Far) from the one that ends best: they may have
// come further before. Where none ends with a finite number, all count. It is
// rounded to three digits of an accuracy, or four of
// a loss, so that they all reach it. `every_step`: no flag that all workers got
// lets them exchange more rarely.
Comparison Compare(AxisValues values, const std::vector<RunResult>& runs,
                   const Aim& aim, std::vector<FailedRun> failed = {},
                   bool every_step = true);

// What the variant's training ends with: of the seed where that is worst, NaN
// where one tells no finite number.
double EndOf(const Goal& goal, const Variant& variant);

// Whether `value` is far from `from`: more than a tenth of an accuracy below it
// or, of losses, above it by more than a tenth of it and a quarter of how far
// `variant` came to it from its first evaluation.
bool Far(const Goal& goal, double value, double from, const Variant& variant);

// Whether rates are steps, of scripts that do not say how many images a step
// has; and their unit, "steps/s" or "images/s".
bool CountsSteps(const Comparison& comparison);
std::string RateUnit(const Comparison& comparison);

// Nothing unless every seed reached it, as no failed run did.
std::optional<Spread> SecondsToTarget(const Comparison& comparison,
                                      const Variant& variant);
// The same where it is not known at which steps that was, as of a script that
// tells none.
std::optional<Spread> StepsToTarget(const Comparison& comparison,
                                    const Variant& variant);
// Of a mean step on the way there: their quotient.
std::optional<Spread> StepSecondsToTarget(const Comparison& comparison,
                                          const Variant& variant);

// The number of its seeds with which the variant reached the target.
int NumReached(const Comparison& comparison, const Variant& variant);

// The number of its seeds whose run failed.
int NumFailed(const Comparison& comparison, const Variant& variant);

// Variants that differ in one axis only.
struct Group {
  std::string label;  // what they share, of what varies; may be empty
  std::vector<const Variant*> variants;
  // Copies of those without failed runs, with the seeds that all of these
  // finished: means over other seeds cannot be compared. Null: they finished
  // the same seeds, or none in common.
  std::shared_ptr<const std::vector<Variant>> shared = nullptr;
  bool none_shared = false;
};

// Those of at least two variants, with all their runs. `comparison` must
// outlive them.
std::vector<Group> GroupsAlong(const Comparison& comparison,
                               absl::string_view axis);

// The group with the seeds that all of its variants finished, but for those of
// which a run failed: they keep theirs, and are not ranked.
Group WithSharedSeeds(const Comparison& comparison, Group group);

// GroupsAlong, each WithSharedSeeds.
std::vector<Group> ComparedAlong(const Comparison& comparison,
                                 absl::string_view axis);

// What a process would send in a step if each were a host of its own; nothing
// where no formula, or not how large the model is, is known. With n workers, S
// servers and a model of M bytes whose gradients are G bytes (M, unless they
// are compressed: see common/optim/compression.h), each rank of a ring sends
// (n-1)/n * (G + M), a worker of the servers' sends G, a server n/S * M. A ring
// sends more for buckets of a few KB, which take a way of fewer messages
// (ring/routes.h).
struct TrafficFormula {
  double worker_bytes = 0;
  double server_bytes = 0;  // 0: no servers
};
std::optional<TrafficFormula> FormulaOf(const Variant& variant);

// What the predictor says about a variant's step, averaged over its runs;
// nothing where it does not know one of them.
struct StepPrediction {
  double predicted_s = 0;
  double measured_s = 0;

  double error() const { return predicted_s / measured_s - 1; }
};
std::optional<StepPrediction> PredictionOf(const Variant& variant);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_COMPARISON_H_
