#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/environment.h"
#include "gpu/device_model.h"
#include "lab/bench/operation.h"
#include "lab/bench/pattern.h"
#include "ring/nccl/nccl_communicator.h"

namespace psring {
namespace {

// The host's model holds what is compared; the GPU's gradients are reduced.
class GpuAllReduceOperation : public Operation {
 public:
  GpuAllReduceOperation(RankJob& job, Cancellation& cancellation,
                        int64_t num_elements, float scale)
      : job_(job),
        cancellation_(cancellation),
        num_elements_(num_elements),
        scale_(scale) {}

  ~GpuAllReduceOperation() override {
    communicator_.reset();
    if (device_ != nullptr) {
      device_->UnregisterHost(job_.model().gradients.data());
    }
  }

  // Ranks beyond the number of GPUs share them.
  absl::Status Open() {
    auto all = ListCudaDevices();
    if (!all.ok()) return all.status();
    const auto num_gpus = static_cast<int>(all->size());
    const bool shared = job_.num_ranks() > num_gpus;
    if (shared) {
      ReplaceVariables(SharedGpuVariables(job_.rank(), /*on_one_host=*/true));
    }
    auto device = OpenCudaDevice(job_.rank() % num_gpus);
    if (!device.ok()) return device.status();
    auto buffer =
        DeviceBuffer::Create(**device, "the benchmark's buffer", num_elements_);
    if (!buffer.ok()) return buffer.status();
    auto stream = (*device)->CreateStream();
    if (!stream.ok()) return stream.status();
    auto event = (*device)->CreateEvent();
    if (!event.ok()) return event.status();
    auto api = LoadNccl();
    if (!api.ok()) return api.status();
    absl::Status status = (*device)->RegisterHost(
        job_.model().gradients.data(), job_.model().gradients.size() * 4);
    if (!status.ok()) return status;
    device_ = *std::move(device);
    buffer_ = *std::move(buffer);
    stream_ = *stream;
    event_ = *event;
    NcclOptions options;
    options.allow_shared_gpu = shared;
    options.gather = [this](const std::string& name, const std::string& payload,
                            Time deadline) {
      return job_.member().Gather(name, payload, deadline);
    };
    auto communicator = NcclCommunicator::Create(
        *std::move(api), *device_, cancellation_, job_.member().job(),
        std::move(options), job_.Deadline());
    if (!communicator.ok()) return communicator.status();
    communicator_ = *std::move(communicator);
    return absl::OkStatus();
  }

  absl::Status Prepare(int64_t iteration) override {
    FillPattern(job_.rank(), iteration, 0, Host());
    return Move(buffer_.data(), Host().data());
  }

  absl::Status Run() override {
    return communicator_->AllReduce(buffer_.span(), scale_, job_.Deadline());
  }

  absl::Status Verify(int64_t iteration, int64_t runs) override {
    absl::Status status = Move(Host().data(), buffer_.data());
    if (!status.ok()) return status;
    const int64_t wrong =
        FindWrongSum(job_.num_ranks(), iteration, runs, scale_, Host());
    if (wrong < 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("iteration ", iteration, ", ", runs, " run(s): element ",
                     wrong, " of ", num_elements_, " is ", Host()[wrong],
                     ", which is not what summing over the ranks makes of it"));
  }

 private:
  absl::Status Move(void* to, const void* from) {
    absl::Status status =
        device_->Copy(to, from, buffer_.size_bytes(), stream_);
    status.Update(device_->Record(event_, stream_));
    if (!status.ok()) return status;
    return Await(*device_, event_, job_.Deadline(), cancellation_);
  }

  absl::Span<float> Host() {
    return {job_.model().gradients.data(), static_cast<size_t>(num_elements_)};
  }

  RankJob& job_;
  Cancellation& cancellation_;
  const int64_t num_elements_;
  const float scale_;
  std::unique_ptr<Device> device_;
  DeviceBuffer buffer_;
  Stream stream_;
  Event event_;
  std::unique_ptr<NcclCommunicator> communicator_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Operation>> MakeGpuAllReduce(
    RankJob& job, Cancellation& cancellation, int64_t num_elements,
    float scale) {
  auto operation = std::make_unique<GpuAllReduceOperation>(job, cancellation,
                                                           num_elements, scale);
  if (absl::Status s = operation->Open(); !s.ok()) return s;
  return operation;
}

}  // namespace psring
