#include "lab/host/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace psring {

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

}  // namespace psring
