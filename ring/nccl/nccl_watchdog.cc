#include "ring/nccl/nccl_watchdog.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"

namespace psring {

void ExitOnHungAbort(const absl::Status& why) {
  Log(LogLevel::kCritical,
      absl::StrCat(why.message(),
                   "; NCCL cannot be stopped, so this process ends at once"));
  FlushLog();
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
  NcclWatchdog* const self = watchdog.get();
  self->looker_ = std::thread([self] { self->KeepLooking(); });
  self->judge_ = std::thread([self] { self->KeepJudging(); });
  return watchdog;
}

// The judge ends last: until then it ends a process whose other threads hang.
NcclWatchdog::~NcclWatchdog() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  looker_.join();
  {
    MutexLock lock(&mutex_);
    looked_last_ = true;
  }
  judge_.join();
  if (aborter_.joinable()) aborter_.join();
}

void NcclWatchdog::KeepLooking() {
  const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_;
  };
  while (true) {
    Look().IgnoreError();  // what asks next hears of it
    const auto late = options_.told_late ? options_.told_late() : std::nullopt;
    MutexLock lock(&mutex_);
    if (late.has_value()) late_elsewhere_ = late;
    if (mutex_.AwaitUntil(stopped, Now() + options_.period)) return;
  }
}

void NcclWatchdog::KeepJudging() {
  const auto stopped = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return looked_last_ && !aborting_;
  };
  while (true) {
    bool hangs = false;
    absl::Status why;
    {
      MutexLock lock(&mutex_);
      why = Judge();
      hangs = AbortHangs(Now());
    }
    if (hangs) options_.on_hung_abort(why);
    MutexLock lock(&mutex_);
    if (mutex_.AwaitUntil(stopped, Now() + options_.period)) return;
  }
}

absl::StatusOr<Event> NcclWatchdog::TakeEvent() {
  {
    MutexLock lock(&mutex_);
    if (!free_events_.empty()) {
      const Event event = free_events_.back();
      free_events_.pop_back();
      return event;
    }
  }
  return device_.CreateEvent();
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
  const auto nobody_looks = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return asked_since_ == Time::InfiniteFuture();
  };
  {
    MutexLock lock(&mutex_);
    if (absl::Status s = Judge(); !s.ok()) return s;
    if (!mutex_.AwaitUntil(nobody_looks, Now() + options_.period) ||
        !failure_.ok()) {
      return failure_;
    }
    asked_since_ = Now();
  }
  const absl::Status stream = Advance();
  const std::optional<NcclResult> state = handle_.TryState();
  MutexLock lock(&mutex_);
  asked_since_ = Time::InfiniteFuture();
  stream_.Update(stream);
  if (error_.empty() && state.has_value() && *state != kNcclSuccess &&
      *state != kNcclInProgress) {
    error_ = handle_.Describe(*state);
    error_since_ = Now();
  }
  return Judge();
}

absl::Status NcclWatchdog::Judge() {
  if (!failure_.ok()) return failure_;
  absl::Status why = JudgeNccl(Now(), View(), options_.culprit_grace);
  if (!why.ok()) Fail(std::move(why));
  return failure_;
}

NcclView NcclWatchdog::View() {
  NcclView view;
  view.cancelled = cancellation_.status();
  view.stream = stream_;
  view.error = error_;
  view.error_since = error_since_;
  view.asked_since = asked_since_;
  if (in_flight_.empty()) return view;
  view.collective = in_flight_.front().collective.what;
  view.collective_since = in_flight_.front().since;
  view.timeout = in_flight_.front().collective.timeout;
  view.late_elsewhere =
      in_flight_.front().collective.sequence == late_elsewhere_;
  view.driver_timeout = std::min(view.timeout, options_.driver_timeout);
  return view;
}

NcclWatchdog::InFlight* NcclWatchdog::Oldest(int64_t sequence) {
  if (in_flight_.empty()) return nullptr;
  InFlight& oldest = in_flight_.front();
  return oldest.collective.sequence == sequence ? &oldest : nullptr;
}

absl::Status NcclWatchdog::Advance() {
  while (true) {
    InFlight seen;
    {
      MutexLock lock(&mutex_);
      if (in_flight_.empty()) return absl::OkStatus();
      seen = in_flight_.front();
    }
    const int64_t sequence = seen.collective.sequence;
    const std::optional<Event> ready = seen.collective.ready;
    if (seen.since == Time::InfiniteFuture()) {
      const absl::StatusOr<bool> is_ready =
          ready.has_value() ? device_.IsDone(*ready) : true;
      if (!is_ready.ok()) return is_ready.status();
      MutexLock lock(&mutex_);
      InFlight* const oldest = Oldest(sequence);
      if (*is_ready && oldest != nullptr) oldest->since = Now();
    }
    if (!seen.done.has_value()) return absl::OkStatus();
    const absl::StatusOr<bool> done = device_.IsDone(*seen.done);
    if (!done.ok()) return done.status();
    if (!*done) return absl::OkStatus();
    MutexLock lock(&mutex_);
    if (ready.has_value()) free_events_.push_back(*ready);
    free_events_.push_back(*seen.done);
    in_flight_.pop_front();
  }
}

// The process is cancelled first: whoever waits in it has the abort's time to
// tell the others.
void NcclWatchdog::Fail(absl::Status why) {
  if (absl::IsDeadlineExceeded(why) && options_.who_is_late &&
      !in_flight_.empty()) {
    const InFlight& late = in_flight_.front();
    const int64_t sequence = late.collective.sequence;
    if (options_.tell_late && late_elsewhere_ != sequence) {
      options_.tell_late(sequence);
    }
    why = absl::DeadlineExceededError(
        absl::StrCat(std::string(why.message()), ": ",
                     options_.who_is_late(sequence, Now() - late.since)));
  }
  failure_ = why;
  cancellation_.Cancel(std::move(why));
  aborting_ = true;
  const bool in_stream =
      std::any_of(in_flight_.begin(), in_flight_.end(),
                  [](const InFlight& one) { return one.done.has_value(); });
  aborter_ = std::thread([this, in_stream, why = failure_] {
    if (in_stream && options_.before_abort) options_.before_abort(why);
    {
      MutexLock lock(&mutex_);
      abort_deadline_ = Now() + options_.abort_timeout;
    }
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
