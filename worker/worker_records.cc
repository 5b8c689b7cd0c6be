#include "worker/worker_records.h"

#include <algorithm>

#include "absl/time/time.h"
#include "common/optim/sync_policy.h"
#include "common/trace/metrics_file.h"
#include "worker/torch/gpu_memory.h"

namespace psring {
namespace {

constexpr int kBusyGroups = 64;

nlohmann::json MeanSeconds(const StepTimes& times, int64_t num_steps) {
  const auto steps = static_cast<double>(std::max<int64_t>(num_steps, 1));
  return {{"compute", absl::ToDoubleSeconds(times.compute) / steps},
          {"exposed", absl::ToDoubleSeconds(times.exposed) / steps},
          {"wait", absl::ToDoubleSeconds(times.injected) / steps},
          {"busy", times.busy.GroupMeans(kBusyGroups)}};
}

// libtorch's, and the model's parameters, gradients and optimizer's state.
nlohmann::json GpuMemoryJson(WorkerGpu* gpu) {
  if (gpu == nullptr) return nullptr;
  const DeviceModel& model = gpu->model();
  const auto num_buffers = static_cast<int64_t>(2 + model.slots.size());
  nlohmann::json bytes = {
      {"model", num_buffers * model.parameters.size_bytes()}};
  const auto memory = GpuMemoryOf(gpu->memory().device);
  if (!memory.has_value()) return bytes;
  bytes["allocated"] = memory->allocated;
  bytes["reserved"] = memory->reserved;
  bytes["peak_allocated"] = memory->peak_allocated;
  bytes["peak_reserved"] = memory->peak_reserved;
  return bytes;
}

}  // namespace

nlohmann::json StartDetails(const proto::Welcome& job, const JobPlan& plan,
                            int64_t num_parameters, bool on_gpu) {
  const proto::JobSpec& spec = job.spec();
  return {{"mode", spec.mode() == proto::RING ? "ring" : "ps"},
          {"sync", PolicyOf(spec).name},
          {"compression", spec.compress()},
          {"data", spec.data()},
          {"device", on_gpu ? "cuda" : "cpu"},
          {"num_parameters", num_parameters},
          {"total_steps", plan.total_steps},
          {"steps_per_epoch", plan.steps_per_epoch},
          {"global_batch", spec.batch_size() * job.workers_size()}};
}

nlohmann::json EndLine(const Trainer& trainer, const Traffic& traffic,
                       const FlatModel& flat, WorkerGpu* gpu) {
  const int64_t shared =
      flat.arena == nullptr ? 0 : flat.arena->address().size_bytes();
  return {
      {"event", "end"},
      {"step", trainer.step()},
      {"seconds", absl::ToDoubleSeconds(trainer.training_time())},
      {"samples", trainer.num_images()},
      {"bytes_sent", traffic.sent},
      {"bytes_received", traffic.received},
      {"gradient_bytes_sent", traffic.gradients_sent},
      {"peak_memory_bytes", PeakMemoryBytes(shared)},
      {"gpu_memory_bytes", GpuMemoryJson(gpu)},
      {"step_seconds", MeanSeconds(trainer.step_times(), trainer.num_steps())}};
}

}  // namespace psring
