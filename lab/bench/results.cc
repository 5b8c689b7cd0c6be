#include "lab/bench/results.h"

#include "lab/host/statistics.h"

namespace psring {
namespace {

std::vector<double> Rates(const LinkStream& link) {
  std::vector<double> rates;
  for (size_t i = 0; i < link.seconds.size(); ++i) {
    rates.push_back(link.bytes[i] * 8 / link.seconds[i]);
  }
  return rates;
}

}  // namespace

double MedianSeconds(const Measurement& measurement) {
  return Median(measurement.seconds);
}

double AlgorithmBandwidth(const SweepPoint& point,
                          const Measurement& measurement) {
  return static_cast<double>(point.size_bytes) / MedianSeconds(measurement);
}

double BusBandwidth(const SweepPoint& point, const Measurement& measurement) {
  return AlgorithmBandwidth(point, measurement) * point.link_load;
}

double TimesLimit(const SweepPoint& point, const Measurement& measurement) {
  return MedianSeconds(measurement) / point.limit_seconds;
}

double CpuSecondsPerGb(const SweepPoint& point,
                       const Measurement& measurement) {
  const double bytes = static_cast<double>(point.size_bytes) * point.ranks *
                       static_cast<double>(measurement.seconds.size());
  return measurement.cpu_seconds / (bytes / 1e9);
}

double TimesPsring(const SweepPoint& point, const Measurement& measurement) {
  return MedianSeconds(measurement) / MedianSeconds(point.measurements.front());
}

double PredictionError(const SweepPoint& point) {
  return point.predicted_seconds / MedianSeconds(point.measurements.front()) -
         1;
}

double LinkRate(const LinkStream& link) { return Median(Rates(link)); }

double LinkRatePercentile(const LinkStream& link, double percent) {
  return Percentile(Rates(link), percent);
}

const Training* FindTraining(const BenchResults& results,
                             const std::string& model,
                             const std::string& precision,
                             const std::string& contender, int workers) {
  for (const Training& training : results.trainings) {
    if (training.model == model && training.precision == precision &&
        training.contender == contender && training.workers == workers) {
      return &training;
    }
  }
  return nullptr;
}

}  // namespace psring
