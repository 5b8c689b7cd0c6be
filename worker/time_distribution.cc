#include "worker/time_distribution.h"

#include <algorithm>
#include <numeric>

namespace psring {

void TimeDistribution::Add(absl::Duration time) {
  if (added_++ % every_ != 0) return;
  kept_.push_back(absl::ToDoubleSeconds(time));
  if (kept_.size() < kMost) return;
  for (size_t i = 0; i < kMost / 2; ++i) kept_[i] = kept_[2 * i];
  kept_.resize(kMost / 2);
  every_ *= 2;
}

std::vector<double> TimeDistribution::GroupMeans(int count) const {
  std::vector<double> sorted = kept_;
  std::sort(sorted.begin(), sorted.end());
  const size_t groups = std::min(sorted.size(), static_cast<size_t>(count));
  std::vector<double> means;
  for (size_t g = 0; g < groups; ++g) {
    const auto begin = sorted.begin() + sorted.size() * g / groups;
    const auto end = sorted.begin() + sorted.size() * (g + 1) / groups;
    means.push_back(std::accumulate(begin, end, 0.0) /
                    static_cast<double>(end - begin));
  }
  return means;
}

}  // namespace psring
