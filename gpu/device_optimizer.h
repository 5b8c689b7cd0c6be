// An optimizer whose parameters and state lie on a GPU.
#ifndef PSRING_GPU_DEVICE_OPTIMIZER_H_
#define PSRING_GPU_DEVICE_OPTIMIZER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/flat_model.h"
#include "common/optim/optimizer.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "protos/cluster.pb.h"

namespace psring {

class DeviceOptimizer {
 public:
  // Blocks until the stream of the call has done all that is in it.
  using Wait = absl::FunctionRef<absl::Status()>;

  // INVALID_ARGUMENT where `model` has not as many slots as the optimizer of
  // that name. The references outlive this.
  static absl::StatusOr<DeviceOptimizer> Create(Device& device,
                                                DeviceModel& model,
                                                Optimizer optimizer,
                                                const std::string& name);

  // Queues the `update`-th update of that range, by gradients * scale.
  absl::Status Update(int64_t update, absl::Span<const double> rates,
                      Range range, float scale, Stream stream) const;

  // The state becomes what `slots` hold, which are the host's; those that are
  // missing stay. INVALID_ARGUMENT where they are of another size. Blocks.
  absl::Status SetState(std::vector<FlatBuffer> slots, Stream stream,
                        Wait wait) const;

  // Writes parameters and state into the files of `directory`, as
  // GradientExchange::SaveState says. Blocks.
  absl::StatusOr<proto::SavedState> Save(const std::string& directory,
                                         Stream stream, Wait wait) const;

  // As GradientExchange::FetchSlots. Blocks.
  absl::Status FetchSlots(absl::Span<float* const> slots, Stream stream,
                          Wait wait) const;

 private:
  DeviceOptimizer(Device& device, DeviceModel& model, Optimizer optimizer)
      : device_(device), model_(model), optimizer_(std::move(optimizer)) {}

  // Between `host` and the device.
  absl::Status Copy(void* to, const void* from, FlatBuffer& host, Stream stream,
                    Wait wait) const;
  // All of the model at that place of the device, in the host's memory.
  absl::StatusOr<FlatBuffer> CopyToHost(const DeviceBuffer& source,
                                        Stream stream, Wait wait) const;

  Device& device_;
  DeviceModel& model_;
  Optimizer optimizer_;
};

}  // namespace psring

#endif  // PSRING_GPU_DEVICE_OPTIMIZER_H_
