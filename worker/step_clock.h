// Where a GPU's time goes: what the processor sees of a step on a GPU is how
// long it took to describe it.
#ifndef PSRING_WORKER_STEP_CLOCK_H_
#define PSRING_WORKER_STEP_CLOCK_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpu/device.h"

namespace psring {

// Lives on the trainer's thread.
class StepClock {
 public:
  struct Times {
    absl::Duration compute;  // input, forward, backward
    // From the end of backward until the next parameters are there.
    absl::Duration exposed;
  };

  static absl::StatusOr<std::unique_ptr<StepClock>> Create(Device& device,
                                                           Stream compute);

  // In this order each step: before its work goes to the stream, after
  // backward's, after what waits for the parameters.
  absl::Status Begin() { return Mark(0); }
  absl::Status EndBackward() { return Mark(1); }
  absl::Status End();

  // The times of the oldest step that has not been told and is done on the GPU;
  // does not wait. A step that is not asked for within two others is lost.
  absl::StatusOr<std::optional<Times>> Next();

 private:
  static constexpr int kSteps = 4;  // on their way at once

  StepClock(Device& device, Stream compute)
      : device_(device), compute_(compute) {}

  absl::Status Mark(int which);

  Device& device_;
  const Stream compute_;
  std::array<std::array<Event, 3>, kSteps> timers_;
  int64_t num_ended_ = 0;
  int64_t num_told_ = 0;
};

}  // namespace psring

#endif  // PSRING_WORKER_STEP_CLOCK_H_
