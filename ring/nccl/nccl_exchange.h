// The worker's side of the ring on GPUs: buckets are summed where they lie by
// NCCL, and every worker applies the optimizer to all of the model, bucket by
// bucket behind its sum, on the communicator's stream.
//
// A thread of its own launches the collectives: NCCL prepares each for tens of
// microseconds, and backward goes on meanwhile. Finish waits until all are
// launched.
//
// Nothing waits for the GPU in a step: Finish puts the new step's parameters in
// front of whatever goes to the model's compute stream next. What fails behind
// the CPU's back is found by the watchdog, and returned by the next call.
//
// In the first step buckets are kept until Finish, where all ranks compare what
// they are about to launch; from then on each leaves as soon as it and those
// before it are ready, in rank 0's order.
#ifndef PSRING_RING_NCCL_NCCL_EXCHANGE_H_
#define PSRING_RING_NCCL_NCCL_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <optional>
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
#include "protos/cluster.pb.h"
#include "ring/collective_runner.h"
#include "ring/nccl/nccl_communicator.h"

namespace psring {

// Rows of the timeline; null: none.
struct NcclTracks {
  Track* trainer = nullptr;   // of the caller's thread
  Track* launches = nullptr;  // of the thread that launches
};

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

  // What a ring moves for these allreduces, 2(n-1)/n of their bytes; NCCL does
  // not say, and may choose another topology.
  Traffic traffic() const override { return {bytes_, bytes_, bytes_ / 2}; }

 private:
  NcclExchange(Device& device, DeviceModel& model, const proto::Welcome& job,
               absl::Duration step_timeout, JobPlan plan, Optimizer optimizer,
               const NcclTracks& tracks, absl::Span<const double> rates);

  // All ranks compare what they have submitted.
  absl::Status Agree(Time deadline);
  // Whatever is next in the order and has been submitted.
  void LaunchReady();
  // On the thread that launches.
  absl::Status Launch(int bucket, Event ready, int64_t step);
  absl::Status UpdateBucket(Range range, int64_t step);
  // Between `host` and the device. Blocks.
  absl::Status Copy(void* to, const void* from, FlatBuffer& host,
                    Time deadline);

  // Fixed after Create.
  Device& device_;
  DeviceModel& model_;
  const proto::Welcome job_;
  const absl::Duration step_timeout_;
  const JobPlan plan_;
  const Optimizer optimizer_;
  const NcclTracks tracks_;
  const absl::Span<const double> rates_;  // the trainer's; none: the plan's
  Event finished_;
  std::unique_ptr<NcclCommunicator> communicator_;

  // The trainer's thread's own.
  std::vector<int> order_;  // of the buckets; empty: not agreed yet
  std::vector<int> submitted_;
  std::vector<std::optional<Event>> ready_;  // by bucket: not launched yet
  size_t num_launched_ = 0;                  // of this step, of order_
  int64_t step_ = 0;
  int64_t num_synchronised_ = 0;
  int64_t num_agreed_ = 0;
  int64_t bytes_ = 0;

  // Uses the communicator, which nobody else does before all is launched but to
  // look and to record.
  CollectiveRunner launches_{CollectiveRunner::Where::kOwnThread};
  int64_t last_launch_ = 0;
};

}  // namespace psring

#endif  // PSRING_RING_NCCL_NCCL_EXCHANGE_H_
