#include "common/exchange/serial_runner.h"

#include <utility>

#include "common/floating_point.h"

namespace psring {

SerialRunner::SerialRunner(Where where, std::function<void()> at_end)
    : at_end_(std::move(at_end)) {
  if (where == Where::kOwnThread) thread_ = std::thread([this] { Loop(); });
}

SerialRunner::~SerialRunner() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

int64_t SerialRunner::Post(Task task) {
  MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  return ++num_posted_;
}

absl::Status SerialRunner::Await(int64_t number) {
  mutex_.Lock();
  while (num_over_ < number) {
    const auto changed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return num_over_ >= number || due();
    };
    if (!due()) mutex_.Await(changed);
    if (num_over_ < number) RunNext();
  }
  absl::Status failure = failure_;
  UnlockAfterTask();
  return failure;
}

absl::Status SerialRunner::Run(absl::FunctionRef<absl::Status()> task) {
  mutex_.Lock();
  if (running_ || !tasks_.empty()) {
    mutex_.UnlockQuietly();
    return Await(Post([&] { return task(); }));
  }
  running_ = true;
  ++num_posted_;
  absl::Status status = failure_;
  mutex_.UnlockQuietly();
  if (status.ok()) status = task();
  mutex_.Lock();
  running_ = false;
  ++num_over_;
  failure_.Update(status);
  UnlockAfterTask();
  return status;
}

// The runner's own thread would be woken for nothing.
void SerialRunner::UnlockAfterTask() {
  if (tasks_.empty()) {
    mutex_.UnlockQuietly();
  } else {
    mutex_.Unlock();
  }
}

void SerialRunner::Loop() {
  UseStandardFloatingPoint();
  const auto changed = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || due();
  };
  {
    MutexLock lock(&mutex_);
    while (true) {
      mutex_.Await(changed);
      if (stopping_) break;
      RunNext();
    }
  }
  if (at_end_ != nullptr) at_end_();
}

void SerialRunner::RunNext() {
  const Task task = std::move(tasks_.front());
  tasks_.pop_front();
  running_ = true;
  if (failure_.ok()) {
    mutex_.UnlockQuietly();
    const absl::Status status = task();
    mutex_.Lock();
    failure_.Update(status);
  }
  running_ = false;
  ++num_over_;
}

}  // namespace psring
