// Sums a model's gradients over the ranks of a communicator, bucket by bucket,
// where they lie on the GPU.
//
// A thread of its own launches the collectives: NCCL prepares each for tens of
// microseconds, and backward goes on meanwhile. In the first step buckets are
// kept until the step ends, where all ranks compare what they are about to
// launch; from then on each leaves as soon as it and those before it are ready,
// in rank 0's order.
#ifndef PSRING_RING_NCCL_BUCKET_SUMS_H_
#define PSRING_RING_NCCL_BUCKET_SUMS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/exchange/serial_runner.h"
#include "common/trace/timeline.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "protos/cluster.pb.h"
#include "ring/nccl/nccl_communicator.h"

namespace psring {

// Rows of the timeline; null: none.
struct NcclTracks {
  Track* trainer = nullptr;   // of the caller's thread
  Track* launches = nullptr;  // of the thread that launches
};

class BucketSums {
 public:
  // Queues to the communicator's stream what belongs behind a bucket's sum, on
  // the thread that launches. Does not wait.
  using Then = std::function<absl::Status(int bucket, int64_t step)>;

  // `job`: of the communicator's ranks. `step_timeout`: how long one sum may
  // take. The references outlive this.
  BucketSums(NcclCommunicator& communicator, DeviceModel& model,
             const proto::Welcome& job, absl::Duration step_timeout,
             const NcclTracks& tracks, Then then);

  // The gradients of `bucket` are complete behind what the model's compute
  // stream holds now. On the thread that runs backward.
  absl::Status Submit(int bucket, int64_t step);
  // All buckets have been submitted: blocks until their sums are launched, and
  // in the first step until all ranks have compared what they launch.
  absl::Status LaunchAll(int64_t step, Time deadline);

  // What a ring moves for these sums, 2(n-1)/n of their bytes; NCCL does not
  // say, and may choose another topology.
  int64_t bytes() const { return bytes_; }

 private:
  // All ranks compare what they have submitted.
  absl::Status Agree(int64_t step, Time deadline);
  // Whatever is next in the order and has been submitted.
  void LaunchReady(int64_t step);
  // On the thread that launches.
  absl::Status Launch(int bucket, Event ready, int64_t step);

  NcclCommunicator& communicator_;
  DeviceModel& model_;
  const proto::Welcome& job_;
  const absl::Duration step_timeout_;
  const NcclTracks tracks_;
  const Then then_;

  // The trainer's thread's own.
  std::vector<int> order_;  // of the buckets; empty: not agreed yet
  std::vector<int> submitted_;
  std::vector<std::optional<Event>> ready_;  // by bucket: not launched yet
  size_t num_launched_ = 0;                  // of this step, of order_
  int64_t num_agreed_ = 0;
  int64_t bytes_ = 0;

  // Uses the communicator, which nobody else does before all is launched but to
  // look and to record.
  SerialRunner launches_{SerialRunner::Where::kOwnThread};
  int64_t last_launch_ = 0;
};

}  // namespace psring

#endif  // PSRING_RING_NCCL_BUCKET_SUMS_H_
