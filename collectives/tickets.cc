#include "collectives/tickets.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {
namespace {

absl::Status Unknown(int64_t handle) {
  return absl::InvalidArgumentError(
      absl::StrCat("there is no handle ", handle, ", or no longer"));
}

}  // namespace

Tickets::Tickets() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Tickets::~Tickets() { close(fd_); }

void Tickets::Wake() {
  MutexLock lock(&mutex_);
  WakeLocked();
}

void Tickets::WakeLocked() {
  has_work_ = true;
  if (std::exchange(readable_, true)) return;
  const uint64_t one = 1;
  // Cannot fail: what was written before has been read.
  [[maybe_unused]] ssize_t written = write(fd_, &one, sizeof(one));
}

void Tickets::Connect(CollectiveJob job) {
  MutexLock lock(&mutex_);
  main_ = job.main_thread;
  work_.job = std::move(job);
  WakeLocked();
}

absl::StatusOr<int64_t> Tickets::Post(std::optional<Call> call) {
  MutexLock lock(&mutex_);
  if (pending_ >= kMaxPending) {
    return absl::ResourceExhaustedError(absl::StrCat(
        kMaxPending, " collectives are under way: wait for some of them"));
  }
  ++pending_;
  const int64_t handle = ++last_handle_;
  tickets_[handle];
  work_.posted.push_back({handle, std::move(call)});
  has_work_ = true;
  return handle;
}

absl::StatusOr<bool> Tickets::Wait(int64_t handle, absl::Duration timeout,
                                   absl::FunctionRef<void(Time)> help) {
  const Time now = Now();
  const Time end = now + std::min(timeout, absl::Hours(24));
  MutexLock lock(&mutex_);
  auto found = tickets_.find(handle);
  if (found == tickets_.end()) return Unknown(handle);
  Ticket& ticket = found->second;
  // Without a timeout a caller only looks, and does other things meanwhile.
  if (!ticket.done && timeout > absl::ZeroDuration()) {
    if (ticket.waiters == 0 && now - ticket.last_waited > kPollGap) {
      ticket.waiting_since = now;
    }
    ticket.main_waits |= std::this_thread::get_id() == main_;
    ++ticket.waiters;
    mutex_.UnlockQuietly();
    help(end);
    mutex_.Lock();
    // Another thread may release it meanwhile.
    const auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      found = tickets_.find(handle);
      return found == tickets_.end() || found->second.done;
    };
    mutex_.AwaitUntil(settled, end);
    if (found == tickets_.end()) return Unknown(handle);
    --found->second.waiters;
    found->second.last_waited = Now();
  }
  if (!found->second.done) return false;
  if (!found->second.status.ok()) return found->second.status;
  return true;
}

absl::Status Tickets::SetOrder(int64_t handle, absl::string_view order) {
  MutexLock lock(&mutex_);
  const auto found = tickets_.find(handle);
  if (found == tickets_.end()) return Unknown(handle);
  if (std::this_thread::get_id() == main_) {
    found->second.order = std::string(order);
  }
  return absl::OkStatus();
}

absl::Status Tickets::Release(int64_t handle) {
  MutexLock lock(&mutex_);
  const auto found = tickets_.find(handle);
  if (found == tickets_.end()) return Unknown(handle);
  if (!found->second.done) {
    work_.given_up.push_back(handle);
    WakeLocked();
    mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const auto now = tickets_.find(handle);
      return now == tickets_.end() || now->second.done;
    });
  }
  tickets_.erase(handle);
  return absl::OkStatus();
}

absl::StatusOr<Tickets::Ticket*> Tickets::Done(int64_t handle) {
  const auto found = tickets_.find(handle);
  if (found == tickets_.end()) return Unknown(handle);
  if (!found->second.done) {
    return absl::FailedPreconditionError(
        absl::StrCat("handle ", handle, " is not done: wait for it first"));
  }
  if (!found->second.status.ok()) return found->second.status;
  return &found->second;
}

absl::StatusOr<std::vector<int64_t>> Tickets::Sizes(int64_t handle) {
  MutexLock lock(&mutex_);
  const auto ticket = Done(handle);
  if (!ticket.ok()) return ticket.status();
  return (*ticket)->gathered.sizes;
}

absl::Status Tickets::Copy(int64_t handle, void* out, int64_t bytes) {
  MutexLock lock(&mutex_);
  const auto ticket = Done(handle);
  if (!ticket.ok()) return ticket.status();
  int64_t total = 0;
  for (const int64_t size : (*ticket)->gathered.sizes) total += size;
  if (bytes != total) {
    return absl::InvalidArgumentError(absl::StrCat(
        "room for ", bytes, " bytes, but handle ", handle, " has ", total));
  }
  if (total > 0 && (*ticket)->gathered.bytes == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "what handle ", handle, " has brought is in the caller's memory"));
  }
  if (total > 0) {
    std::memcpy(out, (*ticket)->gathered.bytes.get(),
                static_cast<size_t>(total));
  }
  return absl::OkStatus();
}

void Tickets::Stop() {
  MutexLock lock(&mutex_);
  work_.stop = true;
  WakeLocked();
}

bool Tickets::IsSettled(int64_t handle) {
  mutex_.Lock();
  const auto found = tickets_.find(handle);
  const bool settled = found == tickets_.end() || found->second.done;
  mutex_.UnlockQuietly();
  return settled;
}

Tickets::Work Tickets::Take() {
  if (!has_work_) return {};
  MutexLock lock(&mutex_);
  if (std::exchange(readable_, false)) {
    uint64_t count = 0;
    [[maybe_unused]] ssize_t got = read(fd_, &count, sizeof(count));
  }
  Work work = std::exchange(work_, {});
  work_.stop = has_work_ = work.stop;
  return work;
}

void Tickets::Finish(int64_t handle, absl::Status status, Gathered gathered) {
  MutexLock lock(&mutex_);
  const auto found = tickets_.find(handle);
  if (found == tickets_.end() || found->second.done) return;
  --pending_;
  found->second.done = true;
  found->second.status = std::move(status);
  found->second.gathered = std::move(gathered);
}

Tickets::Awaited Tickets::AwaitedFor(int64_t handle, Time now) {
  MutexLock lock(&mutex_);
  const auto found = tickets_.find(handle);
  if (found == tickets_.end()) return {};
  const Ticket& ticket = found->second;
  Awaited awaited;
  awaited.order = ticket.order;
  if (ticket.waiters == 0 && now - ticket.last_waited > kPollGap) {
    return awaited;
  }
  awaited.by_any = std::max(now - ticket.waiting_since, absl::ZeroDuration());
  if (ticket.main_waits) awaited.by_main = awaited.by_any;
  return awaited;
}

}  // namespace psring
