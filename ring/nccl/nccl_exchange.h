// The worker's side of the ring on GPUs: buckets are summed where they lie by
// NCCL, and every worker applies the optimizer to all of the model, bucket by
// bucket behind its sum, on the communicator's stream.
//
// Nothing waits for the GPU in a step: Finish puts the new step's parameters in
// front of whatever goes to the model's compute stream next. What fails behind
// the CPU's back is found by the watchdog, and returned by the next call.
#ifndef PSRING_RING_NCCL_NCCL_EXCHANGE_H_
#define PSRING_RING_NCCL_NCCL_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/net/cancellation.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "common/trace/timeline.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "gpu/device_optimizer.h"
#include "protos/cluster.pb.h"
#include "ring/nccl/bucket_sums.h"
#include "ring/nccl/nccl_communicator.h"

namespace psring {

class NcclExchange : public GradientExchange {
 public:
  // `model` has the optimizer's slots. `step_timeout`: how long one collective,
  // or the start of NCCL, may take. Blocks until all ranks are connected; see
  // NcclCommunicator::Create. All references outlive the exchange. `rates`:
  // where the job takes rates from its workers, those of FlatModel; they
  // outlive the exchange.
  static absl::StatusOr<std::unique_ptr<NcclExchange>> Create(
      NcclApi api, Device& device, Cancellation& cancellation,
      DeviceModel& model, const proto::Welcome& job, NcclOptions options,
      absl::Duration step_timeout, const NcclTracks& tracks = {},
      absl::Span<const double> rates = {});

  // `slots` are the host's.
  using GradientExchange::Join;
  // `arrived` is not called.
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override;
  absl::Status Submit(int bucket) override;
  // Blocks in the first step alone.
  absl::Status Finish(Time deadline) override;
  int64_t step() const override { return step_; }
  absl::Status Synchronise(Before next, Time deadline) override;
  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time deadline) override;
  absl::Status FetchSlots(absl::Span<float* const> slots,
                          Time deadline) override;

  Traffic traffic() const override {
    return {sums_.bytes(), sums_.bytes(), sums_.bytes() / 2};
  }

 private:
  NcclExchange(Device& device, DeviceModel& model, const proto::Welcome& job,
               absl::Duration step_timeout, JobPlan plan,
               DeviceOptimizer optimizer,
               std::unique_ptr<NcclCommunicator> communicator,
               const NcclTracks& tracks, absl::Span<const double> rates);

  absl::Status UpdateBucket(Range range, int64_t step);

  // Fixed after Create.
  Device& device_;
  DeviceModel& model_;
  const proto::Welcome job_;
  const JobPlan plan_;
  const DeviceOptimizer optimizer_;
  Track* const track_;
  const absl::Span<const double> rates_;  // the trainer's; none: the plan's
  Event finished_;
  const std::unique_ptr<NcclCommunicator> communicator_;

  // The trainer's thread's own.
  int64_t step_ = 0;
  int64_t num_synchronised_ = 0;

  BucketSums sums_;  // uses the communicator
};

}  // namespace psring

#endif  // PSRING_RING_NCCL_NCCL_EXCHANGE_H_
