#include "collectives/mesh_runner.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "common/floating_point.h"
#include "common/net/socket.h"

namespace psring {
namespace {

// After a call was posted, its caller soon waits for it, and takes turns: for
// so long the thread leaves them to it.
constexpr absl::Duration kPatience = absl::Microseconds(200);
// And for so long where callers have taken some since: they go on so. What
// comes meanwhile wakes nobody.
constexpr absl::Duration kLongPatience = absl::Milliseconds(2);
// After so long it asks for a turn: what others say by sockets, which nobody
// needs, is heard all the same.
constexpr absl::Duration kMostPatience = absl::Milliseconds(100);

}  // namespace

// ---- The thread ----

void MeshRunner::Run() {
  TakeOver();
  while (mesh_.Turn(Mesh::Hear::kSockets)) {
    const Mesh::Sleep sleep = mesh_.PrepareToSleep();
    LetOthersRun(sleep.until);
    const absl::Status waited = Wait(sleep.sockets, sleep.fds, sleep.until);
    TakeOver();
    mesh_.OnWoken(waited);
  }
  mesh_.End();
}

void MeshRunner::TakeOver() {
  mutex_.Lock();
  thread_sleeps_ = false;
  Time last_caller = last_caller_;
  const Time asks = Now() + kMostPatience;
  absl::Duration patience = kPatience;
  absl::Duration look_after = kLongPatience;
  const auto may_run = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !taken_ && (thread_is_needed_ || Now() >= last_caller_ + patience);
  };
  do {
    const bool others_came =
        last_caller_ != std::exchange(last_caller, last_caller_);
    if (taken_ || others_came) patience = kLongPatience;
    // Longer and longer while one caller waits.
    look_after =
        others_came ? kLongPatience : std::min(2 * look_after, kMostPatience);
    if (Now() >= asks) {
      thread_asks_ = thread_is_needed_ = true;
      tickets_.Wake();  // the caller
    }
    thread_looks_ = taken_ ? Now() + look_after : last_caller_ + patience;
  } while (!mutex_.AwaitUntil(may_run, thread_looks_));
  taken_ = true;
  thread_is_needed_ = thread_asks_ = false;
  mutex_.UnlockQuietly();
}

void MeshRunner::LetOthersRun(Time until) {
  mutex_.Lock();
  taken_ = false;
  thread_sleeps_ = true;
  thread_looks_ = until;
  mutex_.UnlockQuietly();
}

// ---- Callers ----

bool MeshRunner::TryTakeOver() {
  mutex_.Lock();
  const bool may_run = !taken_ && !thread_asks_ && mesh_.NeedsNoSockets();
  if (may_run) {
    taken_ = true;
    mesh_.StayAwake();
  }
  mutex_.UnlockQuietly();
  return may_run;
}

void MeshRunner::HandBack(bool stopped) {
  mutex_.Lock();
  const bool thread_sleeps = thread_sleeps_;
  mutex_.UnlockQuietly();
  // What comes from now on wakes it. What comes again and again is left to it:
  // this caller has other things to do.
  bool rings = !thread_sleeps || mesh_.LetNewsWake();
  if (!rings && !stopped && mesh_.NeedsNoSockets()) {
    stopped = !mesh_.Turn(Mesh::Hear::kMailboxes);
    rings = mesh_.LetNewsWake();
  }
  const bool over = stopped || !mesh_.NeedsNoSockets() || !rings;
  const bool done = !mesh_.HasMoreToDo();
  const Time now = Now();
  mutex_.Lock();
  taken_ = false;
  last_caller_ = now;
  const Time soon = now + (thread_sleeps_ ? Mesh::kTick : kLongPatience);
  if (over || thread_asks_ || (!done && thread_looks_ > soon)) {
    CallThread();
  } else {
    mutex_.UnlockQuietly();
  }
}

bool MeshRunner::ThreadAsks() {
  mutex_.Lock();
  const bool asks = thread_asks_;
  mutex_.UnlockQuietly();
  return asks;
}

void MeshRunner::CallThread() {
  thread_is_needed_ = true;
  // Whoever has the turn may wait, too.
  const bool wake = thread_sleeps_ || taken_;
  mutex_.Unlock();
  if (wake) tickets_.Wake();
}

void MeshRunner::OnPosted(bool large) {
  if (large) {
    mutex_.Lock();
    return CallThread();
  }
  if (!TryTakeOver()) return tickets_.Wake();
  const StandardFloatingPoint arithmetic;
  HandBack(!mesh_.Turn(Mesh::Hear::kMailboxes));
}

void MeshRunner::RunFor(int64_t handle, Time deadline) {
  if (!TryTakeOver()) return;
  const StandardFloatingPoint arithmetic;
  const Time begin = Now();
  const Time asleep = begin + awake_.limit();
  bool stopped = false;
  while (true) {
    stopped = !mesh_.Turn(Mesh::Hear::kMailboxes);
    if (stopped || !mesh_.NeedsNoSockets()) break;
    if (tickets_.IsSettled(handle)) {
      awake_.Record(Now() - begin);
      break;
    }
    while (!mesh_.HasNews() && Now() < asleep) sched_yield();
    if (!mesh_.HasNews()) mesh_.AwaitNews(handle, deadline);
    if (Now() >= deadline || ThreadAsks()) break;
  }
  HandBack(stopped);
}

}  // namespace psring
