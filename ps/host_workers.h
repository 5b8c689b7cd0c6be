// The workers that share this host with a server, and what passes between them
// and a shard: gradients are read and parameters written where they lie in the
// workers' arenas; words there say what has come and what has been answered; a
// doorbell wakes whoever waits.
#ifndef PSRING_PS_HOST_WORKERS_H_
#define PSRING_PS_HOST_WORKERS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "common/model/worker_arena.h"
#include "common/net/doorbell.h"
#include "protos/cluster.pb.h"

namespace psring {

// Both null: that worker is elsewhere.
struct HostWorker {
  std::unique_ptr<WorkerArena> arena;
  std::unique_ptr<DoorbellButton> button;
};

// By rank.
std::vector<HostWorker> FindHostWorkers(const Layout& layout,
                                        const proto::Welcome& job);

// One shard's side. Its thread's own; the workers outlive it.
class HostShard {
 public:
  // Tells every worker that this shard, the `shard`-th of the job, reads its
  // arena. `buckets`: those of which the shard has a part.
  HostShard(absl::Span<const HostWorker> workers, int shard,
            std::vector<int> buckets);

  // Calls on_push for each bucket whose gradients of `step` a worker has pushed
  // since the last call; false makes it deaf to that worker.
  void Poll(
      absl::FunctionRef<bool(int worker, int bucket, int64_t step)> on_push);

  // From flat element `begin` on.
  const float* gradients(int worker, int64_t begin) const {
    return workers_[worker].arena->gradients() + begin;
  }
  const double* rates(int worker) const {
    return workers_[worker].arena->rates();
  }
  float* parameters(int worker, int64_t begin) const {
    return workers_[worker].arena->parameters() + begin;
  }

  // One more piece of that worker's parameters is in place; it goes on with
  // `next_step`, or what another piece tells it if that is later. It wakes with
  // the next RingAnswered.
  void Answer(int worker, int64_t next_step);
  void RingAnswered();

 private:
  // The arena of that worker, or null: not here, or deaf to it.
  WorkerArena* ArenaOf(int worker) const {
    return deaf_[worker] ? nullptr : workers_[worker].arena.get();
  }

  const absl::Span<const HostWorker> workers_;
  const int shard_;
  const std::vector<int> buckets_;
  std::vector<std::vector<int64_t>> seen_;  // by worker and place in buckets_
  std::vector<bool> deaf_;
  std::vector<bool> answered_;  // since the last ring
};

}  // namespace psring

#endif  // PSRING_PS_HOST_WORKERS_H_
