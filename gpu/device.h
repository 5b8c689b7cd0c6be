// One GPU, as psring uses it: memory, streams, events, the few kernels that are
// psring's own. The only door to CUDA.
//
// Work goes to streams and runs there in order, behind the caller's back; a
// stream waits for another's work through events. Nothing here blocks but where
// it says so, so that a GPU that hangs hangs nobody who watches it.
//
// Thread-safe. Whoever opened the device outlives everything allocated on it.
#ifndef PSRING_GPU_DEVICE_H_
#define PSRING_GPU_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "common/optim/optimizer_formulas.h"

namespace psring {

struct DeviceInfo {
  int index = 0;       // among the devices that this process sees
  std::string name;    // "NVIDIA H100"
  std::string bus_id;  // "0000:3b:00.0": the same GPU on one host
  std::string uuid;    // "GPU-8f3a...": of a slice of a GPU (MIG) its own
  int64_t memory_bytes = 0;
  std::string compute_capability;  // "9.0"
  bool takes_one_process = false;  // at a time: compute mode EXCLUSIVE_PROCESS
};

// Handles that live as long as the device.
struct Stream {
  void* handle = nullptr;
};
struct Event {
  void* handle = nullptr;
};

// The stream that libtorch and PyTorch compute on unless told otherwise.
inline constexpr Stream kComputeStream = {};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // Zeroed memory of the device. RESOURCE_EXHAUSTED names what was asked for
  // and what is free. Blocks.
  virtual absl::StatusOr<void*> Allocate(int64_t size_bytes) = 0;
  // Blocks until all work is done.
  virtual void Free(void* data) = 0;

  // Page-locks memory of this host, so that Copy goes at full speed and by
  // itself. RESOURCE_EXHAUSTED names the size. Blocks.
  virtual absl::Status RegisterHost(void* data, int64_t size_bytes) = 0;
  virtual void UnregisterHost(void* data) = 0;

  // Of high priority, and not ordered with the compute stream.
  virtual absl::StatusOr<Stream> CreateStream() = 0;
  virtual absl::StatusOr<Event> CreateEvent() = 0;
  // An event that also knows when it was done.
  virtual absl::StatusOr<Event> CreateTimer() = 0;

  // `event` is done when all that is in `stream` now is.
  virtual absl::Status Record(Event event, Stream stream) = 0;
  // What goes to `stream` from now on waits for what `event` was last recorded
  // behind.
  virtual absl::Status WaitFor(Stream stream, Event event) = 0;
  // True too when it was never recorded. An error is the stream's: it is
  // broken.
  virtual absl::StatusOr<bool> IsDone(Event event) = 0;
  // Between two timers that are done, to about a microsecond.
  virtual absl::StatusOr<absl::Duration> Elapsed(Event begin, Event end) = 0;

  // Lets this GPU read and write that one's memory by itself, over NVLink or
  // PCIe. False: it cannot, and copies between them go through the host.
  // Blocks.
  virtual absl::StatusOr<bool> ReachPeer(Device& peer) = 0;

  // In any direction; host memory has been registered.
  virtual absl::Status Copy(void* to, const void* from, int64_t size_bytes,
                            Stream stream) = 0;
  virtual absl::Status Zero(void* data, int64_t size_bytes, Stream stream) = 0;

  // data[i] *= scale.
  virtual absl::Status Scale(float* data, float scale, int64_t num_elements,
                             Stream stream) = 0;
  // One update of memory of the device by gradient * scale: the optimizers' own
  // formulas, without fused multiply-adds, hence the same bits as the host's.
  virtual absl::Status Update(const OptimizerFormula& formula,
                              const float* gradient, float scale,
                              float* parameters, absl::Span<float* const> slots,
                              int64_t num_elements, Stream stream) = 0;
};

// Whether this program can open a device at all.
bool BuiltWithCuda();

// The CUDA that it was built with: "13.0", or "none".
std::string BuiltCudaVersion();

// What this host has. UNIMPLEMENTED: psring was built without CUDA;
// UNAVAILABLE: no driver or no GPU; FAILED_PRECONDITION: a driver that is too
// old or does not work. All say what to do.
absl::StatusOr<std::vector<DeviceInfo>> ListCudaDevices();

// NOT_FOUND names the devices that there are; else as ListCudaDevices.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index);

// Ends what this process holds of a GPU, which another process may then have to
// itself. Nothing on the device may be used afterwards: for programs in which
// libtorch does not use it.
void ReleaseCudaDevice(int index);

// Blocks until the event is done. DEADLINE_EXCEEDED leaves it to the caller to
// say what was waited for; a cancelled process's status; the stream's error.
absl::Status Await(Device& device, Event event, Time deadline,
                   const Cancellation& cancellation);

}  // namespace psring

#endif  // PSRING_GPU_DEVICE_H_
