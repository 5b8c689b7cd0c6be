#include "ring/nccl/nccl_watchdog.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "spdlog/spdlog.h"

namespace psring {

void ExitOnHungAbort(const absl::Status& why) {
  spdlog::critical("{}; NCCL cannot be stopped, so this process ends at once",
                   std::string(why.message()));
  spdlog::default_logger()->flush();
  std::_Exit(1);
}

NcclWatchdog::NcclWatchdog(Device& device, NcclHandle& handle,
                           Cancellation& cancellation,
                           NcclWatchdogOptions options)
    : device_(device),
      handle_(handle),
      cancellation_(cancellation),
      options_(std::move(options)) {}

std::unique_ptr<NcclWatchdog> NcclWatchdog::Start(Device& device,
                                                  NcclHandle& handle,
                                                  Cancellation& cancellation,
                                                  NcclWatchdogOptions options) {
  std::unique_ptr<NcclWatchdog> watchdog(
      new NcclWatchdog(device, handle, cancellation, std::move(options)));
  watchdog->thread_ = std::thread([self = watchdog.get()] { self->Run(); });
  return watchdog;
}

NcclWatchdog::~NcclWatchdog() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  if (aborter_.joinable()) aborter_.join();
}

void NcclWatchdog::Run() {
  const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ && !aborting_;
  };
  while (true) {
    Look().IgnoreError();  // what asks next hears of it
    bool hangs = false;
    absl::Status why;
    {
      MutexLock lock(&mutex_);
      hangs = AbortHangs(Now());
      why = failure_;
    }
    if (hangs) options_.on_hung_abort(why);
    MutexLock lock(&mutex_);
    if (mutex_.AwaitUntil(stopped, Now() + options_.period)) return;
  }
}

absl::StatusOr<Event> NcclWatchdog::TakeEvent() {
  MutexLock lock(&mutex_);
  if (free_events_.empty()) return device_.CreateEvent();
  const Event event = free_events_.back();
  free_events_.pop_back();
  return event;
}

void NcclWatchdog::GiveBack(Event event) {
  MutexLock lock(&mutex_);
  free_events_.push_back(event);
}

void NcclWatchdog::Begin(WatchedCollective collective) {
  MutexLock lock(&mutex_);
  in_flight_.push_back({std::move(collective), std::nullopt});
}

void NcclWatchdog::Launched(std::optional<Event> done) {
  MutexLock lock(&mutex_);
  in_flight_.back().done = done;
  if (!done.has_value()) in_flight_.pop_back();
}

absl::Status NcclWatchdog::Abort(absl::Status why) {
  MutexLock lock(&mutex_);
  if (failure_.ok()) Fail(std::move(why));
  return failure_;
}

absl::Status NcclWatchdog::Look() {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  const Time now = Now();
  absl::Status why = JudgeNccl(now, View(now), options_.culprit_grace);
  if (!why.ok()) Fail(std::move(why));
  return failure_;
}

NcclView NcclWatchdog::View(Time now) {
  NcclView view;
  view.cancelled = cancellation_.status();
  view.stream = Advance(now);
  const std::optional<NcclResult> state = handle_.TryState();
  if (error_.empty() && state.has_value() && *state != kNcclSuccess &&
      *state != kNcclInProgress) {
    error_ = handle_.Describe(*state);
    error_since_ = now;
  }
  view.error = error_;
  view.error_since = error_since_;
  if (in_flight_.empty()) return view;
  view.collective = in_flight_.front().collective.what;
  view.collective_since = in_flight_.front().since;
  view.timeout = in_flight_.front().collective.timeout;
  return view;
}

absl::Status NcclWatchdog::Advance(Time now) {
  while (!in_flight_.empty()) {
    InFlight& oldest = in_flight_.front();
    const std::optional<Event> ready = oldest.collective.ready;
    if (oldest.since == Time::InfiniteFuture()) {
      const absl::StatusOr<bool> is_ready =
          ready.has_value() ? device_.IsDone(*ready) : true;
      if (!is_ready.ok()) return is_ready.status();
      if (*is_ready) oldest.since = now;
    }
    if (!oldest.done.has_value()) return absl::OkStatus();
    const absl::StatusOr<bool> done = device_.IsDone(*oldest.done);
    if (!done.ok()) return done.status();
    if (!*done) return absl::OkStatus();
    if (ready.has_value()) free_events_.push_back(*ready);
    free_events_.push_back(*oldest.done);
    in_flight_.pop_front();
  }
  return absl::OkStatus();
}

// The process is cancelled first: whoever waits in it has the abort's time to
// tell the others.
void NcclWatchdog::Fail(absl::Status why) {
  if (absl::IsDeadlineExceeded(why) && options_.who_is_late &&
      !in_flight_.empty()) {
    why = absl::DeadlineExceededError(absl::StrCat(
        std::string(why.message()), ": ",
        options_.who_is_late(in_flight_.front().collective.sequence)));
  }
  failure_ = why;
  cancellation_.Cancel(std::move(why));
  aborting_ = true;
  abort_deadline_ = Now() + options_.abort_timeout;
  aborter_ = std::thread([this] {
    handle_.Abort();
    MutexLock lock(&mutex_);
    aborting_ = false;
  });
}

bool NcclWatchdog::AbortHangs(Time now) {
  if (!aborting_ || now < abort_deadline_) return false;
  abort_deadline_ = Time::InfiniteFuture();
  return true;
}

}  // namespace psring
