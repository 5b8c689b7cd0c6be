// Local SGD (Stich 2019) on a GPU: common/exchange/local_steps.h, whose steps
// are made where the model lies. Only every k-th step's parameters leave it.
//
// Nothing waits for the GPU in a step without an averaging.
#ifndef PSRING_GPU_DEVICE_LOCAL_STEPS_H_
#define PSRING_GPU_DEVICE_LOCAL_STEPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/exchange/forwarding_exchange.h"
#include "common/net/cancellation.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "protos/cluster.pb.h"

namespace psring {

class DeviceLocalSteps : public ForwardingExchange {
 public:
  // `exchange`: of `model`, on the GPU; of a job of local steps. `plan`: of
  // every worker's own steps. `model` has its optimizer's slots. All references
  // outlive this.
  static absl::StatusOr<std::unique_ptr<DeviceLocalSteps>> Create(
      std::unique_ptr<GradientExchange> exchange, const proto::JobSpec& spec,
      JobPlan plan, Device& device, DeviceModel& model,
      const Cancellation& cancellation);

  // `slots`, which are the host's, become this worker's own state, on whatever
  // rank.
  using GradientExchange::Join;
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override;
  absl::Status Submit(int bucket) override { return absl::OkStatus(); }
  // Blocks where parameters are averaged.
  absl::Status Finish(Time deadline) override;
  int64_t step() const override { return step_; }
  absl::Status Synchronise(Before next, Time deadline) override;
  // As LocalSteps'.
  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time deadline) override;
  absl::Status CheckSaveDirectory(const std::string& directory,
                                  Time deadline) override {
    return absl::OkStatus();
  }

 private:
  DeviceLocalSteps(std::unique_ptr<GradientExchange> exchange,
                   const proto::JobSpec& spec, JobPlan plan,
                   Optimizer optimizer, Device& device, DeviceModel& model,
                   const Cancellation& cancellation)
      : ForwardingExchange(std::move(exchange)),
        plan_(std::move(plan)),
        optimizer_(std::move(optimizer)),
        period_(spec.local_steps()),
        device_(device),
        model_(model),
        cancellation_(cancellation),
        step_(spec.first_step()) {}

  absl::Status Average(Time deadline);
  // Between `host` and the device. Blocks.
  absl::Status Copy(void* to, const void* from, FlatBuffer& host,
                    Time deadline);

  const JobPlan plan_;
  const Optimizer optimizer_;
  const int64_t period_;
  Device& device_;
  DeviceModel& model_;
  const Cancellation& cancellation_;
  Event copied_;
  int64_t step_;
  bool averaged_ = true;  // since the last step
};

}  // namespace psring

#endif  // PSRING_GPU_DEVICE_LOCAL_STEPS_H_
