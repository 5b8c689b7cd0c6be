// The GPU that a worker computes on, and what of its run belongs to it.
#ifndef PSRING_WORKER_WORKER_GPU_H_
#define PSRING_WORKER_WORKER_GPU_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "common/model/flat_model.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "worker/flat_parameters.h"
#include "worker/torch/gpu_choice.h"

namespace psring {

// The GPU that Open will choose, by its bus id; slices of one GPU (MIG) have
// the same. Empty where it will not find one.
std::string BusIdOf(const DeviceWish& wish, const proto::Welcome& job);

// Keeps this process to the cores near that GPU (--affinity). On a host of one
// NUMA node all are near.
void StayNear(const std::string& bus_id);

// How many of this host's workers, this one among them, keep to the same cores;
// 1 where it does not see the GPUs of the others.
int WorkersNear(const DeviceWish& wish, const proto::Welcome& job);

// Lives on the trainer's thread, and longer than the exchange that it gives.
class WorkerGpu {
 public:
  // Chooses and opens this worker's GPU, makes sure that no other worker has
  // the same (unless `may_share`), and allocates the model there. `num_slots`:
  // of the optimizer's state. Blocks until all workers have chosen theirs.
  static absl::StatusOr<std::unique_ptr<WorkerGpu>> Open(
      const DeviceWish& wish, bool may_share, Member& member,
      const Layout& layout, int num_slots, Time deadline);

  Device& device() { return *device_; }
  DeviceModel& model() { return *model_; }
  FlatMemory memory();

  // Moves parameters between the host's model and the GPU's. Block.
  void Download(FlatModel& host);
  void Upload(FlatModel& host);

 private:
  WorkerGpu() = default;

  std::unique_ptr<Device> device_;
  std::optional<DeviceModel> model_;  // lies on device_
};

}  // namespace psring

#endif  // PSRING_WORKER_WORKER_GPU_H_
