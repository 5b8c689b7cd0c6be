#include "lab/study/curves.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace psring {
namespace {

struct Sample {
  double step;
  double seconds;
  double value;
};

std::vector<BandPoint> EvaluationBand(
    const Variant& variant,
    const std::function<double(const EpochSample&)>& value) {
  size_t shared = variant.runs.empty() ? 0 : variant.runs[0].epochs.size();
  for (const RunResult& run : variant.runs) {
    shared = std::min(shared, run.epochs.size());
  }
  std::vector<BandPoint> band;
  for (size_t i = 0; i < shared; ++i) {
    const auto mean = [&](double (*of)(const EpochSample&)) {
      return SpreadOf(variant,
                      [&](const RunResult& run) { return of(run.epochs[i]); })
          .mean;
    };
    const Spread spread = SpreadOf(
        variant, [&](const RunResult& run) { return value(run.epochs[i]); });
    if (!std::isfinite(spread.mean)) continue;
    band.push_back(
        {mean([](const EpochSample& e) { return static_cast<double>(e.step); }),
         mean([](const EpochSample& e) { return e.seconds; }), spread});
  }
  return band;
}

std::vector<Sample> Smoothed(const std::vector<StepSample>& steps) {
  std::vector<Sample> finite;
  for (const StepSample& step : steps) {
    if (std::isfinite(step.loss)) {
      finite.push_back(
          {static_cast<double>(step.step), step.seconds, step.loss});
    }
  }
  const size_t reach = finite.size() / 50;
  std::vector<Sample> smooth = finite;
  for (size_t i = 0; i < finite.size(); ++i) {
    const size_t first = i < reach ? 0 : i - reach;
    const size_t last = std::min(finite.size(), i + reach + 1);
    double sum = 0;
    for (size_t j = first; j < last; ++j) sum += finite[j].value;
    smooth[i].value = sum / static_cast<double>(last - first);
  }
  return smooth;
}

// Between the samples on both sides of `step`, or the one at the end.
Sample At(const std::vector<Sample>& samples, double step) {
  const auto after = std::lower_bound(
      samples.begin(), samples.end(), step,
      [](const Sample& sample, double s) { return sample.step < s; });
  if (after == samples.begin()) return samples.front();
  if (after == samples.end()) return samples.back();
  const Sample& a = *(after - 1);
  const Sample& b = *after;
  const double part = b.step > a.step ? (step - a.step) / (b.step - a.step) : 1;
  return {step, a.seconds + part * (b.seconds - a.seconds),
          a.value + part * (b.value - a.value)};
}

}  // namespace

std::vector<BandPoint> AccuracyBand(const Variant& variant) {
  return EvaluationBand(variant,
                        [](const EpochSample& e) { return e.test_accuracy; });
}

std::vector<BandPoint> TestLossBand(const Variant& variant) {
  return EvaluationBand(variant,
                        [](const EpochSample& e) { return e.test_loss; });
}

std::vector<BandPoint> LossBand(const Variant& variant, int num_points) {
  std::vector<std::vector<Sample>> seeds;
  double first = 0;
  double last = INFINITY;
  for (const RunResult& run : variant.runs) {
    seeds.push_back(Smoothed(run.steps));
    if (seeds.back().empty()) {
      return EvaluationBand(variant,
                            [](const EpochSample& e) { return e.train_loss; });
    }
    first = std::max(first, seeds.back().front().step);
    last = std::min(last, seeds.back().back().step);
  }
  std::vector<BandPoint> band;
  if (seeds.empty() || last < first) return band;
  for (int i = 0; i < num_points; ++i) {
    const double step = first + (last - first) * i / (num_points - 1);
    BandPoint point = {step, 0, {0, INFINITY, -INFINITY}};
    for (const std::vector<Sample>& samples : seeds) {
      const Sample sample = At(samples, step);
      const auto weight = 1 / static_cast<double>(seeds.size());
      point.seconds += weight * sample.seconds;
      point.value.mean += weight * sample.value;
      point.value.min = std::min(point.value.min, sample.value);
      point.value.max = std::max(point.value.max, sample.value);
    }
    band.push_back(point);
  }
  return band;
}

}  // namespace psring
