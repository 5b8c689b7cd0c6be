#include "ring/thread_team.h"

#include "common/floating_point.h"

namespace psring {

ThreadTeam::ThreadTeam(int size) {
  for (int i = 1; i < size; ++i) {
    threads_.emplace_back([this, i] { Work(i); });
  }
}

ThreadTeam::~ThreadTeam() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::Run(absl::FunctionRef<void(int)> part) {
  if (threads_.empty()) return part(0);
  {
    MutexLock lock(&mutex_);
    part_ = &part;
    working_ = static_cast<int>(threads_.size());
    ++round_;
  }
  part(0);
  MutexLock lock(&mutex_);
  const auto all_done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return working_ == 0;
  };
  mutex_.Await(all_done);
}

void ThreadTeam::Work(int index) {
  UseStandardFloatingPoint();
  int64_t seen = 0;
  while (true) {
    const absl::FunctionRef<void(int)>* part = nullptr;
    {
      MutexLock lock(&mutex_);
      const auto due = [this, seen]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || round_ > seen;
      };
      mutex_.Await(due);
      if (stopping_) return;
      seen = round_;
      part = part_;
    }
    (*part)(index);
    MutexLock lock(&mutex_);
    --working_;
  }
}

}  // namespace psring
