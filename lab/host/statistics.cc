#include "lab/host/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace psring {
namespace {

// How likely t lies between -sqrt(n) * tan(angle) and +sqrt(n) * tan(angle), of
// n degrees of freedom: a finite sum (Abramowitz and Stegun, Handbook of
// Mathematical Functions, 26.7.3 and 26.7.4).
double ProbabilityWithin(double angle, int n) {
  const double sine = std::sin(angle), cosine = std::cos(angle);
  const bool odd = n % 2 == 1;
  double term = odd ? cosine : 1;
  double sum = n == 1 ? 0 : term;
  for (int i = odd ? 3 : 2; i < n; i += 2) {
    term *= cosine * cosine * (i - 1) / i;
    sum += term;
  }
  return odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
}

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

double Percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double rank =
      std::ceil(percent / 100 * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

double StudentsT(double probability, int degrees_of_freedom) {
  constexpr int kHalvings = 60;  // to the precision of a double
  double low = 0, high = std::numbers::pi / 2;
  for (int i = 0; i < kHalvings; ++i) {
    const double angle = (low + high) / 2;
    const bool more =
        1 - ProbabilityWithin(angle, degrees_of_freedom) > probability;
    (more ? low : high) = angle;
  }
  return std::sqrt(degrees_of_freedom) * std::tan(low);
}

}  // namespace psring
