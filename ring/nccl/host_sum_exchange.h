// Sums the gradients of a host's GPUs by NCCL before another exchange moves
// them: that of the group's first worker, its leader, pushes the sum to the
// servers, and NCCL hands the new parameters to all GPUs of the group. A host
// then sends and receives each value once, however many GPUs it has.
//
//   every worker   the sum of a bucket over the group, on NCCL's stream
//   the leader     the inner exchange, behind that stream in place of the
//                  compute stream: copies the sum to the host and pushes it
//   every worker   the leader's new parameters, by a broadcast
//
// The sum is NCCL's: in an order that it chooses, and for two workers the
// canonical one. The leaders' sums are then added in the canonical order, as
// gradients are (common/model/reduce.h).
#ifndef PSRING_RING_NCCL_HOST_SUM_EXCHANGE_H_
#define PSRING_RING_NCCL_HOST_SUM_EXCHANGE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/exchange/forwarding_exchange.h"
#include "common/mutex.h"
#include "common/net/cancellation.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "protos/cluster.pb.h"
#include "ring/nccl/bucket_sums.h"
#include "ring/nccl/nccl_communicator.h"

namespace psring {

class HostSumExchange : public ForwardingExchange {
 public:
  // `group`: HostGroupJob's. `inner`: where this worker leads, one that works
  // on `model` behind its compute stream; otherwise one that moves nothing.
  // `step_timeout`: how long one collective, or the start of NCCL, may take.
  // Blocks until the group is connected; see NcclCommunicator::Create. All
  // references outlive the exchange.
  static absl::StatusOr<std::unique_ptr<HostSumExchange>> Create(
      NcclApi api, Device& device, Cancellation& cancellation,
      DeviceModel& model, proto::Welcome group, NcclOptions options,
      std::unique_ptr<GradientExchange> inner, absl::Duration step_timeout,
      const NcclTracks& tracks = {});

  using GradientExchange::Join;
  // `arrived` is not called.
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override;
  // On the thread that runs backward.
  absl::Status Submit(int bucket) override;
  // The parameters hold the new step for whatever the compute stream gets from
  // now on. All of the group block until the servers have answered the leader:
  // here, where this counts as waiting for others.
  absl::Status Finish(Time deadline) override;
  absl::Status Synchronise(Before next, Time deadline) override;

 private:
  HostSumExchange(Device& device, DeviceModel& model, proto::Welcome group,
                  std::unique_ptr<GradientExchange> inner,
                  std::unique_ptr<NcclCommunicator> communicator,
                  absl::Duration step_timeout, const NcclTracks& tracks);

  // A call of the inner exchange, which takes NCCL's stream for the model's.
  template <typename Call>
  auto OnStream(const Call& call) {
    const Stream compute =
        std::exchange(model_.compute, communicator_->stream());
    auto result = call(inner());
    model_.compute = compute;
    return result;
  }
  // What NCCL's stream gets from now on waits for the compute stream, or the
  // other way round.
  absl::Status FollowCompute();
  absl::Status LeadCompute();
  // The inner exchange gets the buckets whose sums have been launched.
  absl::Status PassOn();

  Device& device_;
  DeviceModel& model_;
  const proto::Welcome group_;
  const absl::Duration step_timeout_;
  Event computed_;
  Event finished_;
  const std::unique_ptr<NcclCommunicator> communicator_;

  Mutex mutex_;
  std::deque<int> launched_ ABSL_GUARDED_BY(mutex_);  // and not passed on

  BucketSums sums_;  // uses the above
};

}  // namespace psring

#endif  // PSRING_RING_NCCL_HOST_SUM_EXCHANGE_H_
