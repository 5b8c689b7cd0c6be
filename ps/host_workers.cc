#include "ps/host_workers.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "common/log.h"

namespace psring {
namespace {

// Answers of which workers may not know while others follow; one that learns of
// none for long takes this server for hung.
constexpr int kMostUntold = 1024;

}  // namespace

std::vector<HostWorker> FindHostWorkers(const Layout& layout,
                                        const proto::Welcome& job) {
  std::vector<HostWorker> found(job.workers_size());
  for (int w = 0; w < job.workers_size(); ++w) {
    const proto::SharedMemory& address = job.workers(w).shared_memory();
    if (address.doorbell_fds_size() != 1) continue;
    auto arena = WorkerArena::Map(layout, /*num_slots=*/0, address);
    if (!arena.ok()) {
      LogDebug("worker $0 is not on this host: $1", w,
               arena.status().message());
      continue;
    }
    auto button = DoorbellButton::Open(address.pid(), address.doorbell_fds(0));
    if (!button.ok()) {
      LogWarning("worker $0 shares memory but no doorbell: $1", w,
                 button.status().message());
      continue;
    }
    found[w] = {*std::move(arena), *std::move(button)};
  }
  return found;
}

HostShard::HostShard(absl::Span<const HostWorker> workers, int shard,
                     std::vector<int> buckets, WakeCount* pushes, bool together,
                     bool has_core)
    : workers_(workers),
      shard_(shard),
      buckets_(std::move(buckets)),
      pushes_(pushes),
      together_(together),
      wait_(has_core),
      seen_(workers.size(), std::vector<int64_t>(buckets_.size(), 0)),
      deaf_(workers.size(), shard >= WorkerArena::kMaxShards),
      used_(workers.size(), false),
      answered_(workers.size(), 0) {
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (WorkerArena* arena = ArenaOf(static_cast<int>(w)); arena != nullptr) {
      arena->shard(shard_).attached.store(1, std::memory_order_release);
    }
  }
}

void HostShard::Poll(
    absl::FunctionRef<bool(int worker, int bucket, int64_t step)> on_push) {
  // What is pushed later than this is counted later too.
  const int64_t counted = pushes_ == nullptr ? 0 : pushes_->count();
  for (int w = 0; w < static_cast<int>(workers_.size()); ++w) {
    WorkerArena* arena = ArenaOf(w);
    used_[w] = arena != nullptr &&
               arena->shard(shard_).used.load(std::memory_order_acquire) != 0;
  }
  int missing = buckets_.empty() ? 0 : std::numeric_limits<int>::max();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (int w = 0; w < static_cast<int>(workers_.size()); ++w) {
      if (!used_[w]) continue;
      const int64_t pushed = workers_[w]
                                 .arena->pushed(buckets_[b])
                                 .load(std::memory_order_acquire);
      if (pushed == seen_[w][b]) continue;
      seen_[w][b] = pushed;
      if (pushed <= 0 || !on_push(w, buckets_[b], pushed - 1)) {
        deaf_[w] = true;
        used_[w] = false;
      }
    }
    missing = std::min(missing, Missing(b));
  }
  next_ = counted + std::max(missing, 1);
}

int HostShard::Missing(size_t bucket) const {
  if (!together_) return 1;
  int64_t least = std::numeric_limits<int64_t>::max();
  int missing = 0;
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (!used_[w] || seen_[w][bucket] > least) continue;
    if (seen_[w][bucket] < least) missing = 0;
    least = seen_[w][bucket];
    ++missing;
  }
  return missing;
}

void HostShard::Answer(int worker, int bucket, int64_t next_step) {
  WorkerArena& arena = *workers_[worker].arena;
  ShardSignals& signals = arena.shard(shard_);
  if (next_step > signals.next_step.load(std::memory_order_relaxed)) {
    signals.next_step.store(next_step, std::memory_order_relaxed);
  }
  arena.answered(bucket).fetch_add(1, std::memory_order_release);
  ++answered_[worker];
  if (++num_untold_ == kMostUntold) TellAnswers();
}

void HostShard::TellAnswers() {
  num_untold_ = 0;
  for (size_t w = 0; w < workers_.size(); ++w) {
    if (answered_[w] == 0) continue;
    WorkerArena& arena = *workers_[w].arena;
    std::atomic<int64_t>& answers = arena.shard(shard_).answers;
    answers.store(answers.load(std::memory_order_relaxed) + answered_[w],
                  std::memory_order_release);
    if (arena.answers().Add(answered_[w])) workers_[w].button->Ring();
    answered_[w] = 0;
  }
}

}  // namespace psring
