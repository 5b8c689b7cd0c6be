// Collectives on one GPU a rank, by NCCL, bootstrapped and watched over our own
// control plane. Data lies in the GPU's memory.
//
// Work goes to a stream of its own, of high priority, behind events of the
// compute stream. The calls of Communicator wait for it; Enqueue* do not.
//
// Sums run in float32 in an order that NCCL chooses: the same bits on every
// rank, equal to the canonical sum within rounding, and to its bits for two
// ranks. The scale is multiplied in once, after the sum.
#ifndef PSRING_RING_NCCL_NCCL_COMMUNICATOR_H_
#define PSRING_RING_NCCL_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "gpu/device.h"
#include "protos/cluster.pb.h"
#include "ring/communicator.h"
#include "ring/nccl/nccl_api.h"
#include "ring/nccl/nccl_handle.h"
#include "ring/nccl/nccl_watchdog.h"

namespace psring {

// Member::Gather, callable from any thread.
using GatherFunction = std::function<absl::StatusOr<std::vector<std::string>>(
    const std::string& name, const std::string& payload, Time deadline)>;

struct NcclOptions {
  GatherFunction gather;
  bool allow_shared_gpu = false;  // two ranks on one GPU: never for speed
  // How long the end may take: the work that is on its way, then NCCL's own.
  absl::Duration end_timeout = absl::Seconds(60);
  NcclWatchdogOptions watchdog;  // who_is_late is filled in
};

class NcclCommunicator : public Communicator {
 public:
  using Then = absl::FunctionRef<absl::Status()>;

  // Blocks until all ranks are connected. `cancellation` is cancelled when a
  // collective fails later; references outlive the communicator. Errors: a rank
  // that has not come, ranks with different versions of NCCL or on one GPU,
  // NCCL's own.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(
      NcclApi api, Device& device, Cancellation& cancellation,
      const proto::Welcome& job, NcclOptions options, Time deadline);

  // Ends it with the other ranks, when all work that is on its way is done;
  // alone where it has failed or that takes longer than the end may.
  ~NcclCommunicator() override;

  int rank() const override { return job_.rank(); }
  int size() const override { return job_.workers_size(); }
  absl::Status AllReduce(absl::Span<float> data, float scale,
                         Time deadline) override;
  absl::Status AllGather(absl::Span<float> data, Time deadline) override;
  absl::Status Broadcast(absl::Span<float> data, int root,
                         Time deadline) override;
  absl::Status Barrier(Time deadline) override;

  // NCCL may then read and write it directly; the same calls on every rank, and
  // nobody does where one cannot. An error is the control plane's.
  absl::Status RegisterBuffer(void* data, int64_t size_bytes, Time deadline);

  Stream stream() const { return stream_; }
  // The number of the last collective: the same on every rank that has made as
  // many.
  int64_t sequence() const { return sequence_; }

  // The stream whose work collectives come behind, from now on; the compute
  // stream until then.
  void SetComputeStream(Stream stream) { compute_ = stream; }
  // An event recorded behind what is in that stream now.
  absl::StatusOr<Event> RecordReady();
  // Sums in place, behind `ready` (from RecordReady). `then` queues what
  // belongs behind it to stream(). Does not wait for the GPU; the first
  // collective of its size waits for the peers' launch. `timeout` runs from
  // when this rank's part could begin; `what` names it in errors.
  absl::Status EnqueueAllReduce(absl::Span<float> data, std::string what,
                                Event ready, absl::Duration timeout, Then then);
  // In the same way: every rank's `data` becomes the root's.
  absl::Status EnqueueBroadcast(absl::Span<float> data, int root,
                                std::string what, Event ready,
                                absl::Duration timeout);

  // What the watchdog has found, if anything. Does not block.
  absl::Status Look() { return watchdog_->Look(); }
  // Blocks until stream() has done all that is in it.
  absl::Status Drain(Time deadline);

  // Through the control plane: all ranks' payloads, by rank. `name` is used
  // once.
  absl::StatusOr<std::vector<std::string>> Gather(const std::string& name,
                                                  const std::string& payload,
                                                  Time deadline);

 private:
  using Launch = NcclHandle::Use;

  NcclCommunicator(NcclApi api, Device& device, Cancellation& cancellation,
                   const proto::Welcome& job, NcclOptions options);

  absl::Status Connect(Time deadline);
  // Rank 0's id, once all ranks have come and suit one another.
  absl::StatusOr<NcclId> ExchangeId(Time deadline);
  // Blocks until NCCL has done what was asked of it, beside the stream.
  absl::Status Settle();
  absl::Status Enqueue(std::string what, Event ready, absl::Duration timeout,
                       Launch launch, Then then);
  absl::Status LaunchNow(Event ready, Launch launch, Then then);
  // Enqueue behind all of that stream, and wait.
  absl::Status Block(std::string what, Time deadline, Launch launch, Then then);
  std::string WhoIsLate(int64_t sequence, absl::Duration waited);
  absl::Status Close();

  Device& device_;
  Cancellation& cancellation_;
  const proto::Welcome job_;
  const NcclOptions options_;
  Stream stream_;
  Stream compute_ = kComputeStream;
  float* token_ = nullptr;         // a barrier's, on the device
  std::vector<void*> registered_;  // NCCL's handles
  int64_t sequence_ = 0;           // of the last collective
  int64_t num_gathers_ = 0;

  NcclHandle handle_;
  std::unique_ptr<NcclWatchdog> watchdog_;  // uses all of the above
};

}  // namespace psring

#endif  // PSRING_RING_NCCL_NCCL_COMMUNICATOR_H_
