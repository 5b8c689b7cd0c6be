// A worker's own steps of local SGD (common/exchange/local_steps.h) on the GPU
// where its model lies. Only parameters that are averaged leave it, and nothing
// waits for the GPU in a step without an averaging.
#ifndef PSRING_GPU_DEVICE_STEPS_H_
#define PSRING_GPU_DEVICE_STEPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/exchange/local_steps.h"
#include "common/net/cancellation.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "gpu/device_optimizer.h"
#include "protos/cluster.pb.h"

namespace psring {

class DeviceSteps : public OwnSteps {
 public:
  // `model` has the optimizer's slots. The references outlive this.
  static absl::StatusOr<std::unique_ptr<OwnSteps>> Create(
      const proto::OptimizerSettings& optimizer, Device& device,
      DeviceModel& model, const Cancellation& cancellation);

  absl::Status SetState(std::vector<FlatBuffer> slots, Time deadline) override;
  absl::Status Step(int64_t update, double rate) override;
  absl::Status OfferParameters() override;
  absl::StatusOr<proto::SavedState> Save(const std::string& directory,
                                         Time deadline) override;
  absl::Status FetchSlots(absl::Span<float* const> slots,
                          Time deadline) override;

 private:
  DeviceSteps(Device& device, DeviceModel& model, DeviceOptimizer optimizer,
              const Cancellation& cancellation, Event copied)
      : device_(device),
        model_(model),
        optimizer_(std::move(optimizer)),
        cancellation_(cancellation),
        copied_(copied) {}

  // Until the compute stream has done all that is in it.
  absl::Status AwaitCompute(Time deadline);

  Device& device_;
  DeviceModel& model_;
  const DeviceOptimizer optimizer_;
  const Cancellation& cancellation_;
  const Event copied_;
};

}  // namespace psring

#endif  // PSRING_GPU_DEVICE_STEPS_H_
