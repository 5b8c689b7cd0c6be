// Which GPU a worker computes on: decisions, without a look at any.
#ifndef PSRING_WORKER_TORCH_GPU_CHOICE_H_
#define PSRING_WORKER_TORCH_GPU_CHOICE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/cluster/host_of.h"
#include "protos/cluster.pb.h"

namespace psring {

// --device
struct DeviceWish {
  enum class Kind { kAuto, kCpu, kCuda };

  Kind kind = Kind::kAuto;
  int index = -1;  // of kCuda; -1: by the worker's place on its host
};

// "auto", "cpu", "cuda", "cuda:1".
absl::StatusOr<DeviceWish> ParseDevice(absl::string_view text);

// Whether to compute on a GPU, where `gpus` says that there are any that can be
// used, or what is missing: FAILED_PRECONDITION where there are some, and
// UNIMPLEMENTED where psring cannot know, and `has_driver` tells. That is an
// error only for who wished for one. A GPU is not left unused in silence.
absl::StatusOr<bool> DecideOnGpu(const DeviceWish& wish,
                                 const absl::Status& gpus, bool has_driver);

// The GPU of a worker at that place of a host where it sees `num_gpus`: the
// index it wished for, else its place, else they take turns. Launchers such as
// Slurm may let each worker see other ones: whether two have the same,
// CheckNotShared tells. INVALID_ARGUMENT where there is none of that index.
absl::StatusOr<int> ChooseGpu(const DeviceWish& wish, const LocalPlace& place,
                              int num_gpus);

// What a worker tells the others of its GPU. `uuid`: of a slice of a GPU (MIG)
// its own.
std::string GpuText(absl::string_view host, absl::string_view bus_id,
                    absl::string_view uuid);

// Whether two workers have one GPU, or slices of it, which NCCL takes for the
// same. `gpus[r]`: GpuText of worker r of `job`.
bool ShareAGpu(const std::vector<std::string>& gpus, const proto::Welcome& job);

// `gpus[r]` names the GPU of worker r, on all hosts. INVALID_ARGUMENT names two
// workers with the same one, unless `may_share`.
absl::Status CheckNotShared(const std::vector<std::string>& gpus,
                            bool may_share);

}  // namespace psring

#endif  // PSRING_WORKER_TORCH_GPU_CHOICE_H_
