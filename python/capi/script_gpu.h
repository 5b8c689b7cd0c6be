// The GPU that a foreign program's model lies on, and what sums there.
#ifndef PSRING_PYTHON_CAPI_SCRIPT_GPU_H_
#define PSRING_PYTHON_CAPI_SCRIPT_GPU_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/job_client.h"
#include "client/ring_backend.h"
#include "common/clock.h"
#include "gpu/device.h"
#include "protos/cluster.pb.h"

namespace psring {

// What psring_open_model was told; see psring.h.
struct GpuWish {
  int index = -1;  // of the GPU; -1: the model lies in the host's memory
  std::string ring_backend = "auto";
};

// Before NCCL's abort lets the GPU go on behind sums that are not complete:
// gives whoever waits in psring a second to tell others, then logs why and ends
// the process with status 1. A program may save what lies on the GPU without
// asking psring first. Returns at once where the program has given up.
void ExitBeforeAbort(const absl::Status& why);
// Whether the program has: it ends in its own way, with its own exit code, and
// what lies on the GPU is worth nothing to it.
void SetGivenUp(bool given_up);

// Where devices and NCCL come from; a test has its own.
struct GpuDoor {
  std::function<absl::StatusOr<std::unique_ptr<Device>>(int index)> open =
      OpenCudaDevice;
  NcclLoader load_nccl = [] { return LoadNccl(); };
  std::function<void(const absl::Status&)> before_abort = ExitBeforeAbort;
};

// "cpu", "cuda:1". INVALID_ARGUMENT: anything else.
absl::StatusOr<int> ParseScriptDevice(const std::string& text);

// Chooses what sums: in ring mode, where it also sets it in `spec`, or within a
// host before servers do. A value: it is NCCL.
// With "auto" it is where every worker has it and a GPU of its own, and nothing
// would travel in the clear that must not; all workers come to the same, and
// one of them says why not. All workers call it, each with its device and the
// same wish; with "auto" it blocks until they have. In mode ps, what
// ChooseHostSum says, "host" for "off". INVALID_ARGUMENT where "nccl" cannot do
// what the job asks for.
absl::StatusOr<std::optional<NcclApi>> ChooseSums(
    const GpuWish& wish, const GpuDoor& door, const Device& device,
    JobClient& job, proto::JobSpec& spec, Time deadline);

}  // namespace psring

#endif  // PSRING_PYTHON_CAPI_SCRIPT_GPU_H_
