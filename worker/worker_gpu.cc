#include "worker/worker_gpu.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/environment.h"
#include "common/cluster/host_of.h"
#include "common/host_cores.h"
#include "common/log.h"
#include "gpu/near_cores.h"
#include "ring/nccl/nccl_api.h"
#include "worker/torch/tensors.h"

namespace psring {
namespace {

absl::StatusOr<DeviceInfo> Choose(const DeviceWish& wish,
                                  const proto::Welcome& job) {
  const auto all = ListCudaDevices();
  if (!all.ok()) return all.status();
  const auto index = ChooseGpu(wish, PlaceOnHost(job, job.rank()),
                               static_cast<int>(all->size()));
  if (!index.ok()) return index.status();
  return (*all)[*index];
}

absl::StatusOr<std::unique_ptr<Device>> OpenChosen(const DeviceWish& wish,
                                                   bool may_share,
                                                   Member& member,
                                                   Time deadline) {
  const proto::Welcome& job = member.job();
  const auto chosen = Choose(wish, job);
  if (!chosen.ok()) return chosen.status();
  const DeviceInfo& info = *chosen;
  const auto gpus = member.Gather(
      "gpus", GpuText(job.workers(job.rank()).host(), info.bus_id, info.uuid),
      deadline);
  if (!gpus.ok()) return gpus.status();
  if (absl::Status s = CheckNotShared(*gpus, may_share); !s.ok()) return s;
  if (may_share && ShareAGpu(*gpus, job)) {
    ReplaceVariables(SharedGpuVariables(job.rank(), OnOneHost(job)));
  }
  // Not before: a GPU may let one process in at a time, and its error would
  // name no worker.
  auto device = OpenCudaDevice(info.index);
  if (!device.ok()) return device.status();
  LogInfo("worker $0 computes on GPU $1, $2", job.rank(), info.index,
          info.name);
  return device;
}

at::Tensor ParametersOf(const FlatMemory& memory, int64_t size) {
  return TensorAt(memory.parameters, {size}, memory.device);
}

}  // namespace

std::string BusIdOf(const DeviceWish& wish, const proto::Welcome& job) {
  const auto chosen = Choose(wish, job);
  return chosen.ok() ? chosen->bus_id : std::string();
}

void StayNear(const std::string& bus_id) {
  const int before = HostCores();
  const int left = KeepTo(CoresNear(bus_id));
  if (left == 0 || left >= before) return;
  LogInfo("keeps to $0 of $1 cores, which are near its GPU (--affinity)", left,
          before);
}

int WorkersNear(const DeviceWish& wish, const proto::Welcome& job) {
  const auto all = ListCudaDevices();
  const LocalPlace place = PlaceOnHost(job, job.rank());
  // Launchers set it where each worker sees GPUs of its own.
  if (ReadVariables().contains("CUDA_VISIBLE_DEVICES") || !all.ok() ||
      wish.index >= 0 || static_cast<int>(all->size()) < place.count) {
    return 1;
  }
  std::vector<std::string> taken;
  for (int i = 0; i < place.count; ++i) taken.push_back((*all)[i].bus_id);
  return NumNear(taken[place.index], taken);
}

absl::StatusOr<std::unique_ptr<WorkerGpu>> WorkerGpu::Open(
    const DeviceWish& wish, bool may_share, Member& member,
    const Layout& layout, int num_slots, Time deadline) {
  auto device = OpenChosen(wish, may_share, member, deadline);
  if (!device.ok()) return device.status();
  std::unique_ptr<WorkerGpu> gpu(new WorkerGpu);
  gpu->device_ = *std::move(device);
  auto model = DeviceModel::Create(*gpu->device_, layout, num_slots);
  if (!model.ok()) return model.status();
  gpu->model_.emplace(*std::move(model));
  return gpu;
}

FlatMemory WorkerGpu::memory() {
  return {c10::Device(c10::kCUDA,
                      static_cast<c10::DeviceIndex>(device_->info().index)),
          model_->parameters.data(), model_->gradients.data()};
}

void WorkerGpu::Download(FlatModel& host) {
  const int64_t size = host.parameters.size();
  ParametersOf(MemoryOf(host), size).copy_(ParametersOf(memory(), size));
}

void WorkerGpu::Upload(FlatModel& host) {
  const int64_t size = host.parameters.size();
  ParametersOf(memory(), size).copy_(ParametersOf(MemoryOf(host), size));
}

}  // namespace psring
