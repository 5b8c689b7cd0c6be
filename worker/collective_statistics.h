// The statistics of all workers' batches, by collectives.
#ifndef PSRING_WORKER_COLLECTIVE_STATISTICS_H_
#define PSRING_WORKER_COLLECTIVE_STATISTICS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/job_client.h"
#include "collectives/collectives.h"
#include "common/cluster/activity.h"
#include "common/trace/timeline.h"
#include "worker/models/gather_statistics.h"

namespace psring {

// Called on the trainer's thread, and on the one that runs backward for it.
class CollectiveStatistics : public GatherStatistics {
 public:
  // All workers call it, on the trainer's thread; as ConnectCollectives.
  // `track` shows when this worker waits for the others; null: no timeline.
  static absl::StatusOr<std::unique_ptr<CollectiveStatistics>> Connect(
      JobClient& job, absl::Duration step_timeout, Track* track);

  // Through host memory and the network. Throws StatusError: a worker is lost,
  // or does not come within the step timeout.
  std::vector<float> Gather(absl::Span<const float> mine) override;

 private:
  CollectiveStatistics(std::unique_ptr<Collectives> collectives,
                       Activity& trainer, Track* track)
      : collectives_(std::move(collectives)),
        trainer_(trainer),
        track_(track) {}

  absl::StatusOr<std::vector<float>> TryGather(absl::Span<const float> mine);
  absl::StatusOr<std::vector<float>> AwaitResult(int64_t handle);

  const std::unique_ptr<Collectives> collectives_;
  Activity& trainer_;
  Track* const track_;  // null: no timeline
};

}  // namespace psring

#endif  // PSRING_WORKER_COLLECTIVE_STATISTICS_H_
