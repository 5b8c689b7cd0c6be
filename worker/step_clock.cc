#include "worker/step_clock.h"

#include <algorithm>

namespace psring {

absl::StatusOr<std::unique_ptr<StepClock>> StepClock::Create(Device& device,
                                                             Stream compute) {
  std::unique_ptr<StepClock> clock(new StepClock(device, compute));
  for (auto& step : clock->timers_) {
    for (Event& timer : step) {
      const auto created = device.CreateTimer();
      if (!created.ok()) return created.status();
      timer = *created;
    }
  }
  return clock;
}

absl::Status StepClock::Mark(int which) {
  return device_.Record(timers_[num_ended_ % kSteps][which], compute_);
}

absl::Status StepClock::End() {
  absl::Status status = Mark(2);
  ++num_ended_;
  // Its timers are the next step's.
  num_told_ = std::max(num_told_, num_ended_ - (kSteps - 1));
  return status;
}

absl::StatusOr<std::optional<StepClock::Times>> StepClock::Next() {
  if (num_told_ == num_ended_) return std::optional<Times>();
  const std::array<Event, 3>& step = timers_[num_told_ % kSteps];
  const absl::StatusOr<bool> done = device_.IsDone(step[2]);
  if (!done.ok()) return done.status();
  if (!*done) return std::optional<Times>();
  ++num_told_;
  const auto compute = device_.Elapsed(step[0], step[1]);
  if (!compute.ok()) return compute.status();
  const auto exposed = device_.Elapsed(step[1], step[2]);
  if (!exposed.ok()) return exposed.status();
  return std::optional<Times>({*compute, *exposed});
}

}  // namespace psring
