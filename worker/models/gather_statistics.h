// How batch norm hears of the other workers' batches.
#ifndef PSRING_WORKER_MODELS_GATHER_STATISTICS_H_
#define PSRING_WORKER_MODELS_GATHER_STATISTICS_H_

#include <vector>

#include "absl/types/span.h"

namespace psring {

class GatherStatistics {
 public:
  virtual ~GatherStatistics() = default;

  // The numbers of all workers, one worker's behind the other's, in the order
  // of ranks. All workers call it equally often, with equally many numbers.
  // Blocks; throws where another worker is lost (StatusError).
  virtual std::vector<float> Gather(absl::Span<const float> mine) = 0;
};

}  // namespace psring

#endif  // PSRING_WORKER_MODELS_GATHER_STATISTICS_H_
