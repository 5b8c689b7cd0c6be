// How old the parameters were that gradients were computed on. Staleness of a
// gradient: how many updates by other workers its piece has seen since its
// worker's parameters were read. 0 in bsp.
#ifndef PSRING_PS_STALENESS_STATS_H_
#define PSRING_PS_STALENESS_STATS_H_

#include <cstdint>
#include <vector>

namespace psring {

// The last bin counts everything from kStalenessBins - 1 on.
inline constexpr int kStalenessBins = 64;

struct StalenessStats {
  explicit StalenessStats(int num_workers = 0)
      : histograms(num_workers, std::vector<int64_t>(kStalenessBins, 0)) {}

  int64_t updates = 0;  // gradients of pieces
  int64_t sum = 0;
  int64_t max = 0;
  std::vector<std::vector<int64_t>> histograms;  // by worker

  void Record(int worker, int64_t staleness);
  void Add(const StalenessStats& other);
};

}  // namespace psring

#endif  // PSRING_PS_STALENESS_STATS_H_
