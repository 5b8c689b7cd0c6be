#include "ps/serving_stats.h"

#include <algorithm>
#include <numeric>

namespace psring {

void StalenessStats::Record(int worker, int64_t staleness) {
  ++updates;
  sum += staleness;
  max = std::max(max, staleness);
  ++histograms[worker][std::min<int64_t>(staleness, kStalenessBins - 1)];
}

void StalenessStats::Add(const StalenessStats& other) {
  updates += other.updates;
  sum += other.sum;
  max = std::max(max, other.max);
  if (histograms.empty())
    histograms = StalenessStats(other.histograms.size()).histograms;
  for (size_t w = 0; w < other.histograms.size(); ++w) {
    for (int bin = 0; bin < kStalenessBins; ++bin) {
      histograms[w][bin] += other.histograms[w][bin];
    }
  }
}

int64_t ServingStats::num_late() const {
  return std::accumulate(late_gradients.begin(), late_gradients.end(),
                         int64_t{0});
}

void ServingStats::Add(const ServingStats& other) {
  staleness.Add(other.staleness);
  late_gradients.resize(
      std::max(late_gradients.size(), other.late_gradients.size()), 0);
  for (size_t w = 0; w < other.late_gradients.size(); ++w) {
    late_gradients[w] += other.late_gradients[w];
  }
  bytes_sent += other.bytes_sent;
  bytes_received += other.bytes_received;
}

}  // namespace psring
