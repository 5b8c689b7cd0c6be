// A GPU made of host memory: what goes to a stream really runs behind the
// caller's back, on a thread a stream, so that an order that was forgotten
// shows (and the thread sanitizer names it). Its memory can be read and written
// directly by whoever knows that no stream does; or, as a real one's, by nobody
// but the device: then whoever touches an address of the device is killed.
#ifndef PSRING_TESTS_TESTING_FAKE_DEVICE_H_
#define PSRING_TESTS_TESTING_FAKE_DEVICE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/optim/optimizer_formulas.h"
#include "gpu/device.h"
#include "tests/testing/fake_memory.h"

namespace psring {

class FakeDevice : public Device {
 public:
  using Work = std::function<absl::Status()>;

  // As device `index` of its host, with so much memory.
  explicit FakeDevice(int index = 0, int64_t memory_bytes = int64_t{1} << 32,
                      FakeMemory memory = FakeMemory::kOpen);
  // Ends what Stall keeps busy, drops what has not begun, joins.
  ~FakeDevice() override;

  // Runs `work` in its turn. Its error breaks the device: nothing more is run,
  // and every event answers with it.
  void Enqueue(Stream stream, Work work);
  // Work that does not end before Release.
  void Stall(Stream stream);
  // From now on IsDone does not return before Release, as a driver's call
  // behind a kernel that hangs.
  void HangQueries();
  // Blocks until one does.
  void AwaitHungQuery();
  void Release();
  // Blocks until all work is done.
  void AwaitIdle();
  // Blocks until so many copies are done, since the start; false: not in time.
  bool AwaitCopies(int64_t n, Time deadline);
  int64_t num_copies() const;

  // From now on every `n`th update is lost, as by a kernel that does not run.
  void DropUpdates(int n);

  // Whether it reaches other fake GPUs' memory by itself.
  void CanReachPeers(bool can);

  // Calls that put something into a stream, or into none.
  int64_t num_calls() const;

  // Where this process can read and write what lies at an address of the
  // device: somewhere else, where memory is guarded.
  float* Reach(const float* data) const;

  int64_t allocated_bytes() const;
  int num_registered() const;

  const DeviceInfo& info() const override { return info_; }
  // Not zero before the compute stream has come to it, for which this waits, as
  // behind a kernel of a real one.
  absl::StatusOr<void*> Allocate(int64_t size_bytes) override;
  void Free(void* data) override;
  // ALREADY_EXISTS where a page of it has been registered, as CUDA refuses it.
  absl::Status RegisterHost(void* data, int64_t size_bytes) override;
  // Breaks the device where copies that are not done use it: CUDA promises
  // nothing then.
  void UnregisterHost(void* data) override;
  absl::StatusOr<Stream> CreateStream() override;
  absl::StatusOr<Event> CreateEvent() override;
  absl::StatusOr<Event> CreateTimer() override;
  absl::Status Record(Event event, Stream stream) override;
  absl::Status WaitFor(Stream stream, Event event) override;
  absl::StatusOr<bool> IsDone(Event event) override;
  absl::StatusOr<absl::Duration> Elapsed(Event begin, Event end) override;
  // What it says is CanReachPeers'.
  absl::StatusOr<bool> ReachPeer(Device& peer) override;
  // INVALID_ARGUMENT where memory is neither the device's, nor registered, nor
  // of a peer that it has been asked to reach.
  absl::Status Copy(void* to, const void* from, int64_t size_bytes,
                    Stream stream) override;
  absl::Status Zero(void* data, int64_t size_bytes, Stream stream) override;
  absl::Status Scale(float* data, float scale, int64_t num_elements,
                     Stream stream) override;
  absl::Status Update(const OptimizerFormula& formula, const float* gradient,
                      float scale, float* parameters,
                      absl::Span<float* const> slots, int64_t num_elements,
                      Stream stream) override;

 private:
  struct Queue {
    std::deque<Work> work;
    int64_t num_queued = 0;
    int64_t num_done = 0;
    std::thread thread;
  };
  // Done when `queue` has done `ticket` works.
  struct Mark {
    const Queue* queue = nullptr;
    int64_t ticket = 0;
    bool is_timer = false;
    Time done_at = Time::InfinitePast();
  };

  void Run(Queue& queue);
  Queue& QueueOf(Stream stream);
  Queue* AddQueue();
  void CountCall();
  bool Has(const void* data, int64_t size_bytes) const;
  // Where any device's memory, or the host's, is read and written.
  char* ReachAny(const void* data) const;
  absl::Status QueueZero(void* data, int64_t size_bytes, Stream stream);
  // Is it memory of this device (or, with `host`, registered, or a peer's)?
  absl::Status Check(const void* data, int64_t size_bytes, bool host) const;

  const DeviceInfo info_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Queue>> queues_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Mark>> events_ ABSL_GUARDED_BY(mutex_);
  FakeAllocations memory_ ABSL_GUARDED_BY(mutex_);
  int64_t num_releases_ ABSL_GUARDED_BY(mutex_) = 0;
  bool queries_hang_ ABSL_GUARDED_BY(mutex_) = false;
  bool can_reach_peers_ ABSL_GUARDED_BY(mutex_) = true;
  std::vector<FakeDevice*> peers_ ABSL_GUARDED_BY(mutex_);
  int drop_every_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: none
  int64_t num_updates_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_copies_ ABSL_GUARDED_BY(mutex_) = 0;                   // done
  std::multiset<const void*> being_copied_ ABSL_GUARDED_BY(mutex_);  // or from
  int num_hung_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_FAKE_DEVICE_H_
