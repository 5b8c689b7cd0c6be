// The workers that share this host with a server, and what passes between them
// and a shard: gradients are read and parameters written where they lie in the
// workers' arenas; words there say what has come and what has been answered.
// Who waits sleeps until all has come that it waits for, and is woken once: a
// shard by the push that lets it go on, a worker by the shard that answers
// last.
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
#include "common/net/wake_count.h"
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
  // arena. `buckets`: those of which the shard has a part. `pushes`: buckets
  // that the workers have pushed to it; null where they cannot. `together`:
  // nothing follows from a bucket's push before all of them have pushed it.
  // `has_core`: as AwakeWait's.
  HostShard(absl::Span<const HostWorker> workers, int shard,
            std::vector<int> buckets, WakeCount* pushes, bool together,
            bool has_core = false);

  // Calls on_push for each bucket whose gradients of `step` a worker has pushed
  // since the last call; false makes it deaf to that worker.
  void Poll(
      absl::FunctionRef<bool(int worker, int bucket, int64_t step)> on_push);

  // False: a Poll finds something to go on with. True: the thread has to sleep
  // until its doorbell rings, and then to call WakeUp.
  bool PrepareToSleep() {
    return pushes_ == nullptr ||
           (!wait_.Reaches(*pushes_, next_) && pushes_->PrepareToSleep(next_));
  }
  void WakeUp() {
    if (pushes_ == nullptr) return;
    pushes_->WakeUp();
    wait_.OnWoken();
  }

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

  // One more piece of that bucket's parameters is in place for that worker; it
  // goes on with `next_step`, or what another piece tells it if that is later.
  // The next TellAnswers wakes it, if not this.
  void Answer(int worker, int bucket, int64_t next_step);
  void TellAnswers();

 private:
  // The arena of that worker, or null: not here, or deaf to it.
  WorkerArena* ArenaOf(int worker) const {
    return deaf_[worker] ? nullptr : workers_[worker].arena.get();
  }

  // How many workers have yet to push this bucket before it can go on.
  int Missing(size_t bucket) const;

  const absl::Span<const HostWorker> workers_;
  const int shard_;
  const std::vector<int> buckets_;
  WakeCount* const pushes_;
  const bool together_;
  AwakeWait wait_;
  int64_t next_ = 1;  // pushes with which a Poll finds something to go on with
  std::vector<std::vector<int64_t>> seen_;  // by worker and place in buckets_
  std::vector<bool> deaf_;
  std::vector<bool> used_;     // by worker, as Poll has seen
  std::vector<int> answered_;  // by worker, untold
  int num_untold_ = 0;         // of all
};

}  // namespace psring

#endif  // PSRING_PS_HOST_WORKERS_H_
