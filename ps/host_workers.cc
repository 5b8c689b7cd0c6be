#include "ps/host_workers.h"

#include <string>
#include <utility>

#include "spdlog/spdlog.h"

namespace psring {

std::vector<HostWorker> FindHostWorkers(const Layout& layout,
                                        const proto::Welcome& job) {
  std::vector<HostWorker> found(job.workers_size());
  for (int w = 0; w < job.workers_size(); ++w) {
    const proto::SharedMemory& address = job.workers(w).shared_memory();
    if (address.doorbell_fds_size() != 1) continue;
    auto arena = WorkerArena::Map(layout, /*num_slots=*/0, address);
    if (!arena.ok()) {
      spdlog::debug("worker {} is not on this host: {}", w,
                    std::string(arena.status().message()));
      continue;
    }
    auto button = DoorbellButton::Open(address.pid(), address.doorbell_fds(0));
    if (!button.ok()) {
      spdlog::warn("worker {} shares memory but no doorbell: {}", w,
                   std::string(button.status().message()));
      continue;
    }
    found[w] = {*std::move(arena), *std::move(button)};
  }
  return found;
}

HostShard::HostShard(absl::Span<const HostWorker> workers, int shard,
                     std::vector<int> buckets)
    : workers_(workers),
      shard_(shard),
      buckets_(std::move(buckets)),
      seen_(workers.size(), std::vector<int64_t>(buckets_.size(), 0)),
      deaf_(workers.size(), shard >= WorkerArena::kMaxShards),
      answered_(workers.size(), false) {
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (WorkerArena* arena = ArenaOf(static_cast<int>(w)); arena != nullptr) {
      arena->shard(shard_).attached.store(1, std::memory_order_release);
    }
  }
}

void HostShard::Poll(
    absl::FunctionRef<bool(int worker, int bucket, int64_t step)> on_push) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (int w = 0; w < static_cast<int>(workers_.size()); ++w) {
      WorkerArena* arena = ArenaOf(w);
      if (arena == nullptr ||
          arena->shard(shard_).used.load(std::memory_order_acquire) == 0) {
        continue;
      }
      const int64_t pushed =
          arena->pushed(buckets_[b]).load(std::memory_order_acquire);
      if (pushed == seen_[w][b]) continue;
      seen_[w][b] = pushed;
      if (pushed <= 0 || !on_push(w, buckets_[b], pushed - 1)) {
        deaf_[w] = true;
      }
    }
  }
}

void HostShard::Answer(int worker, int64_t next_step) {
  ShardSignals& signals = workers_[worker].arena->shard(shard_);
  if (next_step > signals.next_step.load(std::memory_order_relaxed)) {
    signals.next_step.store(next_step, std::memory_order_relaxed);
  }
  std::atomic<int64_t>& answers = signals.answers;
  answers.store(answers.load(std::memory_order_relaxed) + 1,
                std::memory_order_release);
  answered_[worker] = true;
}

void HostShard::RingAnswered() {
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (!answered_[w]) continue;
    answered_[w] = false;
    workers_[w].button->Ring();
  }
}

}  // namespace psring
