#include "ring/collective_runner.h"

#include <utility>

namespace psring {

CollectiveRunner::CollectiveRunner(Where where, std::function<void()> at_end)
    : at_end_(std::move(at_end)) {
  if (where == Where::kOwnThread) thread_ = std::thread([this] { Loop(); });
}

CollectiveRunner::~CollectiveRunner() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

int64_t CollectiveRunner::Post(Task task) {
  MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  return ++num_posted_;
}

absl::Status CollectiveRunner::Await(int64_t number) {
  const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return num_over_ >= number;
  };
  MutexLock lock(&mutex_);
  if (thread_.joinable()) {
    mutex_.Await(over);
  } else {
    while (!over()) RunNext();
  }
  return failure_;
}

absl::Status CollectiveRunner::Run(absl::FunctionRef<absl::Status()> task) {
  return Await(Post([&] { return task(); }));
}

void CollectiveRunner::Loop() {
  const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !tasks_.empty();
  };
  {
    MutexLock lock(&mutex_);
    while (true) {
      mutex_.Await(due);
      if (stopping_) break;
      RunNext();
    }
  }
  if (at_end_ != nullptr) at_end_();
}

void CollectiveRunner::RunNext() {
  const Task task = std::move(tasks_.front());
  tasks_.pop_front();
  if (failure_.ok()) {
    mutex_.Unlock();
    const absl::Status status = task();
    mutex_.Lock();
    failure_.Update(status);
  }
  ++num_over_;
}

}  // namespace psring
