#include "common/cluster/stop_agreement.h"

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/cluster/process_names.h"
#include "common/log.h"
#include "common/printable.h"

namespace psring {
namespace {

// How often the thread looks whether its owner is done, where the job has not
// ended, which would wake it.
constexpr absl::Duration kLook = absl::Milliseconds(200);

}  // namespace

StopAgreement::StopAgreement(Member& member, int64_t step, int64_t period,
                             Where where)
    : member_(member),
      period_(std::max<int64_t>(period, 1)),
      where_(where),
      step_(step),
      thread_([this] { Run(); }) {
  if (member.job().rank() == 0) {
    member.Announce(proto::PS, kHeedsStop, kHeeded);
  }
}

StopAgreement::~StopAgreement() {
  {
    MutexLock lock(&mutex_);
    done_ = true;
  }
  thread_.join();
}

bool StopAgreement::wished() {
  MutexLock lock(&mutex_);
  return promise_.has_value();
}

absl::StatusOr<bool> StopAgreement::StopsAfter(int64_t step, Time deadline) {
  MutexLock lock(&mutex_);
  step_ = step;
  if (!promise_ || step < *promise_) return false;
  if (where_ == Where::kOwnStep) return true;
  const auto agreed = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return last_step_.has_value();
  };
  if (!mutex_.AwaitUntil(agreed, deadline)) {
    return absl::DeadlineExceededError(
        absl::StrCat("SIGTERM: after step ", step,
                     " not all workers have said in time where they can stop"));
  }
  if (!last_step_->ok()) return last_step_->status();
  return step >= **last_step_;
}

void StopAgreement::Run() {
  while (true) {
    const absl::Status wish =
        member_.AwaitAnnouncement(kStopWish, Now() + kLook).status();
    MutexLock lock(&mutex_);
    if (done_) return;
    if (wish.ok()) break;
    if (!absl::IsDeadlineExceeded(wish)) return;  // the job has ended
  }
  int64_t promise = 0;
  {
    MutexLock lock(&mutex_);
    // The trainer may be in the next step already.
    promise = (step_ + period_) / period_ * period_;
    promise_ = promise;
  }
  if (where_ == Where::kOwnStep) return;
  auto last = Agree(promise);
  MutexLock lock(&mutex_);
  if (last.ok() && *last > promise) {  // others are ahead
    LogInfo(
        "SIGTERM: all workers stop after step $0; this one is at step $1 and "
        "makes the steps in between",
        *last, step_);
  }
  last_step_ = std::move(last);
}

absl::StatusOr<int64_t> StopAgreement::Agree(int64_t promise) {
  // The trainer's deadline bounds the wait: its error ends the job.
  const auto all =
      member_.Gather(kStopWish, absl::StrCat(promise), Time::InfiniteFuture());
  if (!all.ok()) return all.status();
  for (int rank = 0; rank < static_cast<int>(all->size()); ++rank) {
    int64_t step = 0;
    if (!absl::SimpleAtoi((*all)[rank], &step)) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe(member_.job().workers(rank)), " stops after step '",
          Printable((*all)[rank], 64), "', which is no number"));
    }
    promise = std::max(promise, step);
  }
  return promise;
}

}  // namespace psring
