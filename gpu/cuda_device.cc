#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "gpu/device.h"
#include "gpu/driver_check.h"
#include "gpu/kernels.h"

namespace psring {
namespace {

absl::Status Failed(cudaError_t error, absl::string_view what) {
  return absl::InternalError(absl::StrCat("CUDA: ", what, ": ",
                                          cudaGetErrorName(error), ": ",
                                          cudaGetErrorString(error)));
}

absl::Status Check(cudaError_t error, absl::string_view what) {
  return error == cudaSuccess ? absl::OkStatus() : Failed(error, what);
}

std::string Mebibytes(int64_t bytes) {
  return absl::StrCat((bytes + (1 << 20) - 1) >> 20, " MiB");
}

absl::StatusOr<DeviceInfo> Describe(int index) {
  cudaDeviceProp properties;
  if (const cudaError_t e = cudaGetDeviceProperties(&properties, index);
      e != cudaSuccess) {
    return Failed(e, absl::StrCat("device ", index));
  }
  char bus_id[32] = {};
  if (const cudaError_t e =
          cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), index);
      e != cudaSuccess) {
    return Failed(e, absl::StrCat("bus of device ", index));
  }
  int mode = cudaComputeModeDefault;
  if (const cudaError_t e =
          cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index);
      e != cudaSuccess) {
    return Failed(e, absl::StrCat("compute mode of device ", index));
  }
  DeviceInfo info;
  info.index = index;
  info.takes_one_process = mode == cudaComputeModeExclusiveProcess;
  info.name = properties.name;
  info.bus_id = absl::AsciiStrToLower(bus_id);
  info.uuid = absl::StrCat(
      "GPU-", absl::BytesToHexString(
                  {properties.uuid.bytes, sizeof(properties.uuid.bytes)}));
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.compute_capability =
      absl::StrCat(properties.major, ".", properties.minor);
  return info;
}

cudaStream_t Of(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}
cudaEvent_t Of(Event event) { return static_cast<cudaEvent_t>(event.handle); }

// A program may capture its work into a CUDA graph, on any thread: a question
// about another stream does not spoil that meanwhile.
class BesideCaptures {
 public:
  BesideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~BesideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A thread's current device is libtorch's business too, so that each call sets
// its own; that is a look at a thread-local where nothing changes.
class CudaDevice : public Device {
 public:
  explicit CudaDevice(DeviceInfo info) : info_(std::move(info)) {}
  // CUDA finishes what is still under way on a stream.
  ~CudaDevice() override {
    Use();
    MutexLock lock(&mutex_);
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<void*> Allocate(int64_t size_bytes) override {
    Use();
    void* data = nullptr;
    const auto size = static_cast<size_t>(std::max<int64_t>(size_bytes, 1));
    const cudaError_t error = cudaMalloc(&data, size);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it has been told
      size_t free = 0;
      size_t total = 0;
      cudaMemGetInfo(&free, &total);
      return absl::ResourceExhaustedError(absl::StrCat(
          "GPU ", info_.index, " (", info_.name, ") has no room for ",
          Mebibytes(size_bytes), ": ", Mebibytes(static_cast<int64_t>(free)),
          " of ", Mebibytes(static_cast<int64_t>(total)),
          " are free. Use a smaller batch or model, or another GPU"));
    }
    if (error != cudaSuccess) return Failed(error, "cudaMalloc");
    // On the legacy stream, with which CreateStream's are not ordered: waited
    // for, or it would wipe what they write.
    cudaError_t zeroed = cudaMemset(data, 0, size);
    if (zeroed == cudaSuccess) zeroed = cudaStreamSynchronize(nullptr);
    if (zeroed != cudaSuccess) {
      cudaFree(data);
      return Failed(zeroed, "cudaMemset");
    }
    return data;
  }

  void Free(void* data) override {
    Use();
    const BesideCaptures beside;
    cudaFree(data);
  }

  absl::Status RegisterHost(void* data, int64_t size_bytes) override {
    Use();
    const cudaError_t error = cudaHostRegister(
        data, static_cast<size_t>(size_bytes), cudaHostRegisterPortable);
    if (error == cudaSuccess) return absl::OkStatus();
    cudaGetLastError();
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot page-lock ", Mebibytes(size_bytes),
        " of this host's memory for the GPU: ", cudaGetErrorString(error),
        ". Is there so much, and does `ulimit -l` allow it?"));
  }

  void UnregisterHost(void* data) override {
    Use();
    cudaHostUnregister(data);
  }

  absl::StatusOr<Stream> CreateStream() override {
    Use();
    int lowest = 0;
    int highest = 0;
    cudaStream_t stream = nullptr;
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    if (error == cudaSuccess) {
      error =
          cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest);
    }
    if (error != cudaSuccess) return Failed(error, "a stream");
    MutexLock lock(&mutex_);
    streams_.push_back(stream);
    return Stream{stream};
  }

  absl::StatusOr<Event> CreateEvent() override {
    return CreateEventWith(cudaEventDisableTiming);
  }

  absl::StatusOr<Event> CreateTimer() override {
    return CreateEventWith(cudaEventDefault);
  }

  absl::Status Record(Event event, Stream stream) override {
    Use();
    return Check(cudaEventRecord(Of(event), Of(stream)), "cudaEventRecord");
  }

  absl::Status WaitFor(Stream stream, Event event) override {
    Use();
    return Check(cudaStreamWaitEvent(Of(stream), Of(event), 0),
                 "cudaStreamWaitEvent");
  }

  absl::StatusOr<bool> IsDone(Event event) override {
    Use();
    const BesideCaptures beside;
    const cudaError_t error = cudaEventQuery(Of(event));
    if (error == cudaSuccess) return true;
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // else the next kernel's launch would be said to
                           // fail
      return false;
    }
    return Failed(error, "work of this GPU");
  }

  absl::StatusOr<absl::Duration> Elapsed(Event begin, Event end) override {
    Use();
    float milliseconds = 0;
    const cudaError_t error =
        cudaEventElapsedTime(&milliseconds, Of(begin), Of(end));
    if (error != cudaSuccess) return Failed(error, "cudaEventElapsedTime");
    return absl::Milliseconds(milliseconds);
  }

  absl::StatusOr<bool> ReachPeer(Device& peer) override {
    Use();
    int can = 0;
    const int index = peer.info().index;
    cudaError_t error = cudaDeviceCanAccessPeer(&can, info_.index, index);
    if (error == cudaSuccess && can == 0) return false;
    if (error == cudaSuccess) error = cudaDeviceEnablePeerAccess(index, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
      return true;
    }
    if (error == cudaSuccess) return true;
    return Failed(error, absl::StrCat("access to the memory of GPU ", index));
  }

  absl::Status Copy(void* to, const void* from, int64_t size_bytes,
                    Stream stream) override {
    Use();
    return Check(cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes),
                                 cudaMemcpyDefault, Of(stream)),
                 "cudaMemcpyAsync");
  }

  absl::Status Zero(void* data, int64_t size_bytes, Stream stream) override {
    Use();
    return Check(
        cudaMemsetAsync(data, 0, static_cast<size_t>(size_bytes), Of(stream)),
        "cudaMemsetAsync");
  }

  absl::Status Scale(float* data, float scale, int64_t num_elements,
                     Stream stream) override {
    Use();
    return Check(LaunchScale(data, scale, num_elements, Of(stream)),
                 "the scaling kernel");
  }

  absl::Status Update(const OptimizerFormula& formula, const float* gradient,
                      float scale, float* parameters,
                      absl::Span<float* const> slots, int64_t num_elements,
                      Stream stream) override {
    Use();
    UpdateOperands operands = {gradient, parameters, {}, num_elements};
    std::copy(slots.begin(), slots.end(), operands.slots);
    return Check(LaunchUpdate(formula, scale, operands, Of(stream)),
                 "the optimizer's kernel");
  }

 private:
  void Use() const { cudaSetDevice(info_.index); }

  absl::StatusOr<Event> CreateEventWith(unsigned flags) {
    Use();
    cudaEvent_t event = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&event, flags);
    if (error != cudaSuccess) return Failed(error, "an event");
    MutexLock lock(&mutex_);
    events_.push_back(event);
    return Event{event};
  }

  const DeviceInfo info_;
  Mutex mutex_;
  std::vector<cudaStream_t> streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<cudaEvent_t> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

bool BuiltWithCuda() { return true; }

std::string BuiltCudaVersion() { return CudaVersionName(CUDART_VERSION); }

absl::StatusOr<std::vector<DeviceInfo>> ListCudaDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return absl::UnavailableError(
        "there is no GPU that CUDA can use on this host (does "
        "CUDA_VISIBLE_DEVICES hide it?)");
  }
  if (error != cudaSuccess) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    return CannotStartCuda(driver, CUDART_VERSION, cudaGetErrorString(error));
  }
  std::vector<DeviceInfo> all;
  for (int i = 0; i < count; ++i) {
    auto info = Describe(i);
    if (!info.ok()) return info.status();
    all.push_back(*std::move(info));
  }
  return all;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index) {
  auto all = ListCudaDevices();
  if (!all.ok()) return all.status();
  if (index < 0 || index >= static_cast<int>(all->size())) {
    return absl::NotFoundError(absl::StrCat("no GPU ", index,
                                            ": this host has ", all->size(),
                                            ", numbered from 0"));
  }
  if (absl::Status s = CheckGeneration((*all)[index]); !s.ok()) return s;
  if (const cudaError_t e = cudaSetDevice(index); e != cudaSuccess) {
    return Failed(e, absl::StrCat("GPU ", index));
  }
  if (const cudaError_t e = cudaFree(nullptr); e != cudaSuccess) {
    return Failed(e, absl::StrCat("GPU ", index));
  }
  return std::make_unique<CudaDevice>((*all)[index]);
}

void ReleaseCudaDevice(int index) {
  if (cudaSetDevice(index) == cudaSuccess) cudaDeviceReset();
}

}  // namespace psring
