// The worker's side of the ring: buckets are summed by allreduce, and every
// worker applies the optimizer to all of the model, in Finish to each bucket
// that is summed while the next one is on its way. Where all ranks share memory
// each applies it to its own slices while it sums them, and writes the
// new parameters to all: the same bits for an N-th of the work.
//
// A thread of its own runs the collectives, since a ring's bytes move only
// while every rank takes part, and the trainer's thread is busy with backward.
// Tasks go to it through one queue; their results come back in order. Where all
// ranks are on this host and it has no core for that thread, the collectives
// run in Finish on the trainer's: a sum takes the same cores then as backward
// does, and taking turns costs less than getting into each other's way.
#ifndef PSRING_RING_RING_EXCHANGE_H_
#define PSRING_RING_RING_EXCHANGE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/exchange/gradient_exchange.h"
#include "common/mutex.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"
#include "common/optim/compression.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"
#include "ring/shm_communicator.h"
#include "ring/tcp_communicator.h"

namespace psring {

struct RingOptions {
  // Threads that share a rank's part of a sum in shared memory; 0: this host's
  // cores, shared by its ranks, at most 4.
  int comm_threads = 0;
};

class RingExchange : public GradientExchange {
 public:
  // Starts the thread, which listens on `address`. All references outlive the
  // exchange; `model` outlives `context` too.
  static absl::StatusOr<std::unique_ptr<RingExchange>> Create(
      Context& context, const Cancellation& cancellation,
      const std::string& address, FlatModel& model, RingOptions options = {});

  // Stops and joins.
  ~RingExchange() override;

  // For the job's roster.
  const std::string& endpoint() const { return endpoint_; }

  // The job is complete. `step_timeout`: how long one collective may take.
  // `track`: of whichever thread runs collectives, or null; `trainer_track`: of
  // the caller's. Blocks until all ranks know who shares memory with whom.
  absl::Status Connect(const proto::Welcome& job, absl::Duration step_timeout,
                       Track* track = nullptr, Track* trainer_track = nullptr);

  using GradientExchange::Join;
  // `arrived` is not called.
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    absl::Time deadline) override;
  absl::Status Submit(int bucket) override;
  absl::Status Finish(absl::Time deadline) override;
  int64_t step() const override { return step_; }
  absl::Status Synchronise(absl::Time deadline) override;
  absl::Status SaveState(const std::string& directory,
                         absl::Time deadline) override;

  // One allreduce by itself, between steps; see Communicator. Blocks.
  absl::Status AllReduce(absl::Span<float> data, float scale,
                         absl::Time deadline);

  Traffic traffic() const override {
    return {bytes_sent_, bytes_received_, gradient_bytes_};
  }

 private:
  using Task = std::function<absl::Status(Communicator&)>;

  RingExchange(const Cancellation& cancellation, FlatModel& model,
               RingOptions options)
      : cancellation_(cancellation), model_(model), options_(options) {}

  // Maps the arenas of the ranks that are on this host and learns from all
  // others whom they have mapped.
  absl::Status FindNodes(absl::Time deadline);
  void UseSharedMemory();
  int CommThreads(int local_ranks) const;

  void Run();
  // Hands a task to the thread; does not block.
  void Post(Task task);
  // Blocks until every task that was posted is done; the first error.
  absl::Status Drain();
  absl::Status RunTask(Task task);
  // Sums a submitted bucket; on one host updates it too.
  absl::Status ReduceBucket(Communicator& c, int bucket, int64_t step);
  // Each bucket as soon as it is summed, while the thread goes on with the
  // next; not where summing updates. The first error.
  absl::Status UpdateBuckets();
  void UpdateBucket(int bucket);
  std::vector<float*> SlotsAt(int64_t begin);
  // Optimizer state that the other ranks of this host keep.
  void CollectSlots();

  // Fixed after Connect.
  const Cancellation& cancellation_;
  FlatModel& model_;
  const RingOptions options_;
  std::string endpoint_;
  proto::Welcome job_;
  JobPlan plan_;
  std::optional<GradientCodec> codec_;  // none: gradients travel as float32
  absl::Duration step_timeout_ = absl::Seconds(60);
  Track* track_ = nullptr;  // of whoever runs collectives
  Track* trainer_track_ = nullptr;
  std::vector<std::unique_ptr<WorkerArena>> peers_;  // by rank; null: not
                                                     // here, or this one
  std::vector<Node> nodes_;
  std::unique_ptr<ShmCommunicator> shm_;  // in place of the thread's own
  bool inline_ = false;  // collectives run on the trainer's thread

  // The trainer's thread's own.
  std::vector<FlatBuffer> slots_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<int> submitted_;  // buckets of this step
  int64_t num_updated_ = 0;     // buckets, of all steps; not where shm_ is set
  int64_t step_ = 0;
  std::deque<Task> deferred_;  // inline_: until Drain

  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> bytes_received_ = 0;
  std::atomic<int64_t> gradient_bytes_ = 0;

  Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int64_t num_reduced_ ABSL_GUARDED_BY(mutex_) = 0;  // buckets, of all steps

  // The thread's own; null once all ranks share memory: then nobody listens.
  std::unique_ptr<TcpCommunicator> tcp_;
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_RING_RING_EXCHANGE_H_
