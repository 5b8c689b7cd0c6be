#include "worker/step_clock.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/log.h"

namespace psring {
namespace {

// The two clocks differ by some microseconds a second.
constexpr absl::Duration kAnchorInterval = absl::Seconds(1);
constexpr int64_t kAnchorPatienceNs = 1'000'000;
constexpr absl::Duration kFirstAnchorPatience = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<StepClock>> StepClock::Create(Device& device,
                                                             Stream compute,
                                                             Track* timeline) {
  std::unique_ptr<StepClock> clock(new StepClock(device, compute, timeline));
  const auto create_timer = [&](Event& timer) {
    const auto created = device.CreateTimer();
    if (created.ok()) timer = *created;
    return created.status();
  };
  for (Step& step : clock->steps_) {
    for (Event& mark : step.marks) {
      if (absl::Status s = create_timer(mark); !s.ok()) return s;
    }
  }
  const auto idle = device.CreateStream();
  if (!idle.ok()) return idle.status();
  clock->idle_ = *idle;
  for (Anchor& anchor : clock->anchors_) {
    if (absl::Status s = create_timer(anchor.event); !s.ok()) return s;
  }
  if (absl::Status s = clock->DropFirstAnchor(); !s.ok()) return s;
  return clock;
}

absl::Status StepClock::Mark(int which) {
  return device_.Record(steps_[num_ended_ % kSteps].marks[which], compute_);
}

absl::StatusOr<bool> StepClock::DropAnchor() {
  const int next = anchor_ == 0 ? 1 : 0;
  Anchor& anchor = anchors_[next];
  next_anchor_ = Now() + kAnchorInterval;
  const int64_t begin = NowNanos();
  absl::Status recorded = device_.Record(anchor.event, idle_);
  if (!recorded.ok()) return recorded;
  bool is_done = false;
  int64_t end = begin;
  while (!is_done) {
    const auto done = device_.IsDone(anchor.event);
    if (!done.ok()) return done;
    is_done = *done;
    end = NowNanos();
    if (end - begin > kAnchorPatienceNs) return false;
  }
  anchor.ns = begin + (end - begin) / 2;
  anchor_ = next;
  anchor_step_ = num_ended_;
  return true;
}

absl::Status StepClock::DropFirstAnchor() {
  const Time deadline = Now() + kFirstAnchorPatience;
  while (Now() < deadline) {
    const auto dropped = DropAnchor();
    if (!dropped.ok()) return dropped.status();
    if (*dropped || timeline_ == nullptr) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(1));
  }
  timeline_ = nullptr;
  LogWarning(
      "GPU $0 did not answer within a millisecond for $1: the timeline lacks "
      "what it does",
      device_.info().index, absl::FormatDuration(kFirstAnchorPatience));
  return absl::OkStatus();
}

absl::Status StepClock::Begin(int64_t step, absl::Duration injected) {
  if (Now() >= next_anchor_ && num_ended_ - anchor_step_ >= kSteps) {
    const auto dropped = DropAnchor();
    if (!dropped.ok()) return dropped.status();
  }
  Step& next = steps_[num_ended_ % kSteps];
  next.number = step;
  next.injected = injected;
  next.anchor = anchor_;
  return Mark(kBegin);
}

absl::Status StepClock::End() {
  absl::Status status = Mark(kEnd);
  ++num_ended_;
  // Its timers are the next step's.
  num_told_ = std::max(num_told_, num_ended_ - (kSteps - 1));
  return status;
}

absl::Status StepClock::AwaitEnd(Time deadline,
                                 const Cancellation& cancellation) {
  if (num_ended_ == 0) return absl::OkStatus();
  const Step& last = steps_[(num_ended_ - 1) % kSteps];
  const absl::Status status =
      Await(device_, last.marks[kEnd], deadline, cancellation);
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::DeadlineExceededError(absl::StrCat("GPU ", device_.info().index,
                                                  " has not done step ",
                                                  last.number, " in time"));
}

absl::StatusOr<std::optional<StepClock::Times>> StepClock::Next() {
  if (num_told_ == num_ended_) return std::optional<Times>();
  const Step& step = steps_[num_told_ % kSteps];
  const absl::StatusOr<bool> done = device_.IsDone(step.marks[kEnd]);
  if (!done.ok()) return done.status();
  if (!*done) return std::optional<Times>();
  ++num_told_;
  if (timeline_ != nullptr) {
    if (absl::Status s = TellTimeline(step); !s.ok()) return s;
  }
  const auto compute =
      device_.Elapsed(step.marks[kBegin], step.marks[kBackwardEnd]);
  if (!compute.ok()) return compute.status();
  const auto exposed =
      device_.Elapsed(step.marks[kBackwardEnd], step.marks[kEnd]);
  if (!exposed.ok()) return exposed.status();
  std::optional<Times> times(
      {step.number, step.injected, *compute, *exposed, std::nullopt});
  if (step.anchor >= 0) {
    const auto arrived = TimeOf(step, kBackwardEnd);
    if (!arrived.ok()) return arrived.status();
    times->arrived = *arrived;
  }
  return times;
}

absl::StatusOr<Time> StepClock::TimeOf(const Step& step, int mark) {
  const Anchor& anchor = anchors_[step.anchor];
  const auto since = device_.Elapsed(anchor.event, step.marks[mark]);
  if (!since.ok()) return since.status();
  return Time::FromNanos(anchor.ns) + *since;
}

absl::Status StepClock::TellTimeline(const Step& step) {
  std::array<int64_t, kMarks> ns;
  for (int mark = 0; mark < kMarks; ++mark) {
    const auto time = TimeOf(step, mark);
    if (!time.ok()) return time.status();
    ns[mark] = time->nanos();
  }
  const SpanArgs args = {.step = step.number};
  timeline_->Add({"gpu step", args, ns[kBegin], ns[kEnd]});
  timeline_->Add({"gpu data", args, ns[kBegin], ns[kDataEnd]});
  timeline_->Add({"gpu forward", args, ns[kDataEnd], ns[kForwardEnd]});
  timeline_->Add({"gpu backward", args, ns[kForwardEnd], ns[kBackwardEnd]});
  timeline_->Add({"gpu wait", args, ns[kBackwardEnd], ns[kEnd]});
  return absl::OkStatus();
}

}  // namespace psring
