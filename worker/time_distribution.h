// The distribution of many times in little room: of a long run, every 2nd, 4th,
// 8th, ... time.
#ifndef PSRING_WORKER_TIME_DISTRIBUTION_H_
#define PSRING_WORKER_TIME_DISTRIBUTION_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace psring {

class TimeDistribution {
 public:
  void Add(absl::Duration time);

  // In seconds, ascending: the mean of the shortest times, of the next ones,
  // ..., of the longest, `count` groups of near-equal size. Their mean is that
  // of all; an outlier counts for what it is. Fewer times than that: the times
  // themselves.
  std::vector<double> GroupMeans(int count) const;

 private:
  static constexpr size_t kMost = 1 << 13;

  std::vector<double> kept_;
  int64_t every_ = 1;  // one of so many is kept
  int64_t added_ = 0;
};

}  // namespace psring

#endif  // PSRING_WORKER_TIME_DISTRIBUTION_H_
