// How old the parameters were that gradients were computed on. Staleness of a
// gradient: how many updates by other workers its piece has seen since its
// worker's parameters were read. 0 in bsp.
#ifndef PSRING_PS_SERVING_STATS_H_
#define PSRING_PS_SERVING_STATS_H_

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

// What shards have done: of one, of a model's, of a server's.
struct ServingStats {
  StalenessStats staleness;
  // By worker: gradients of pieces that came after their step had closed.
  std::vector<int64_t> late_gradients;
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;

  void Add(const ServingStats& other);
  // Of all workers.
  int64_t num_late() const;
};

}  // namespace psring

#endif  // PSRING_PS_SERVING_STATS_H_
