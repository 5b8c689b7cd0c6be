// Trains a model that lies in a GPU's memory through an exchange that works on
// host memory: a parameter server's, or the ring of CPUs.
//
// Gradients leave through page-locked host memory, the model's own, which is
// the arena where processes share a host: nothing is copied twice. A bucket's
// copy starts on a stream of its own as soon as backward has filled it. A
// thread of the exchange's own waits for it and hands the bucket to the inner
// exchange, which may take long to compress or to send it; the thread that
// runs backward goes on meanwhile. A bucket's new parameters return on another
// stream as they come, while backward still makes the gradients of later ones:
// it reads none of a bucket that it has filled. The compute stream waits for
// them; the processor does not.
#ifndef PSRING_GPU_STAGED_EXCHANGE_H_
#define PSRING_GPU_STAGED_EXCHANGE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/exchange/forwarding_exchange.h"
#include "common/exchange/serial_runner.h"
#include "common/model/flat_model.h"
#include "common/mutex.h"
#include "common/net/cancellation.h"
#include "common/trace/timeline.h"
#include "gpu/device.h"
#include "gpu/device_model.h"

namespace psring {

class StagedExchange : public ForwardingExchange {
 public:
  // Page-locks `host`, which `inner` works on. `timeout`: how long the GPU
  // may take for a bucket's gradients. All references outlive the exchange.
  // `track`: of the thread that hands buckets over, or null.
  // RESOURCE_EXHAUSTED as Device::RegisterHost.
  static absl::StatusOr<std::unique_ptr<StagedExchange>> Create(
      Device& device, DeviceModel& model, FlatModel& host,
      std::unique_ptr<GradientExchange> inner, const Cancellation& cancellation,
      absl::Duration timeout, Track* track = nullptr);
  ~StagedExchange() override;

  using GradientExchange::Join;
  // From the GPU's parameters, which the host's become first. `arrived` is not
  // called.
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override;
  // On the thread that runs backward: that is not the trainer's.
  absl::Status Submit(int bucket) override;
  // The parameters hold the new step for whatever the compute stream gets from
  // now on.
  absl::Status Finish(Time deadline) override;
  absl::Status Synchronise(Before next, Time deadline) override;
  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time deadline) override;
  absl::Status FetchSlots(absl::Span<float* const> slots,
                          Time deadline) override;
  // As of the last call of the inner exchange: another may be under way.
  Traffic traffic() const override;

 private:
  StagedExchange(Device& device, DeviceModel& model, FlatModel& host,
                 std::unique_ptr<GradientExchange> inner,
                 const Cancellation& cancellation, absl::Duration timeout,
                 Track* track)
      : ForwardingExchange(std::move(inner)),
        device_(device),
        model_(model),
        host_(host),
        cancellation_(cancellation),
        timeout_(timeout),
        track_(track) {}

  absl::Status Prepare();
  // On the thread that hands buckets over: waits for the copy, and the inner
  // exchange gets it.
  absl::Status HandOver(int bucket, int64_t step);
  absl::Status AwaitCopy(int bucket);
  // Until all buckets that were submitted have been handed over.
  absl::Status AwaitRunner() { return runner_->Await(last_); }
  void NoteTraffic();
  // The inner exchange has returned `status` from a call of the trainer's.
  absl::Status EndCall(const absl::Status& status);
  // The host's parameters become the GPU's.
  absl::Status FetchParameters(Time deadline);
  // New parameters of this bucket are in host memory.
  absl::Status ReturnBucket(int bucket);
  absl::Status Return(Range range);
  // Where not all buckets have returned they do so now. What the compute stream
  // gets from now on finds all of them.
  absl::Status FinishReturn();
  // At the end: parameters that return are read from the memory that is locked.
  absl::Status AwaitReturn();

  Device& device_;
  DeviceModel& model_;
  FlatModel& host_;
  const Cancellation& cancellation_;
  const absl::Duration timeout_;
  Track* const track_;
  std::vector<void*> registered_;
  Stream leaving_;
  Stream returning_;
  std::vector<Event> filled_;  // by bucket: backward has
  std::vector<Event> left_;    // by bucket: its gradients are in host memory
  Event backward_done_;
  Event returned_;

  // Of whoever calls the inner exchange: `runner_`, or the trainer's thread
  // after AwaitRunner.
  int num_returned_ = 0;  // of this step's buckets
  absl::Status failure_;  // of a ReturnBucket that the inner exchange called

  mutable Mutex mutex_;
  Traffic traffic_ ABSL_GUARDED_BY(mutex_);

  int64_t last_ = 0;  // of the tasks of `runner_`
  std::atomic<bool> stopping_ = false;
  std::optional<SerialRunner> runner_{SerialRunner::Where::kOwnThread};
};

}  // namespace psring

#endif  // PSRING_GPU_STAGED_EXCHANGE_H_
