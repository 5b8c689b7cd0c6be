#include "gpu/device.h"

#include "absl/time/clock.h"
#include "common/clock.h"

namespace psring {

// What is waited for takes longer than this; shorter would only heat a core
// that computes.
constexpr absl::Duration kLookAgain = absl::Microseconds(50);

absl::Status Await(Device& device, Event event, Time deadline,
                   const Cancellation& cancellation) {
  while (true) {
    const absl::StatusOr<bool> done = device.IsDone(event);
    if (!done.ok()) return done.status();
    // What was aborted is done, too, with nothing of use.
    if (absl::Status why = cancellation.status(); !why.ok()) return why;
    if (*done) return absl::OkStatus();
    if (Now() >= deadline) {
      return absl::DeadlineExceededError("the GPU has not done it in time");
    }
    absl::SleepFor(kLookAgain);
  }
}

}  // namespace psring
