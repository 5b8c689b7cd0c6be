// Where a GPU's time goes: what the processor sees of a step on a GPU is how
// long it took to describe it.
#ifndef PSRING_WORKER_STEP_CLOCK_H_
#define PSRING_WORKER_STEP_CLOCK_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "common/trace/timeline.h"
#include "gpu/device.h"

namespace psring {

// Lives on the trainer's thread.
class StepClock {
 public:
  struct Times {
    int64_t step = 0;
    absl::Duration injected;  // what Begin was told
    absl::Duration compute;   // input, forward, backward
    // From the end of backward until the next parameters are there.
    absl::Duration exposed;
    // The end of backward by this process's clock, to about a millisecond;
    // nothing where the GPU has not said yet what time it is.
    std::optional<Time> arrived;
  };

  // `timeline` gets the GPU's steps and their parts as spans, at the times of
  // this process's clock; null: there is no timeline.
  static absl::StatusOr<std::unique_ptr<StepClock>> Create(
      Device& device, Stream compute, Track* timeline = nullptr);

  // In this order each step: before its work goes to the stream, after each
  // part's, and after what waits for the parameters. Of a part that is computed
  // again the last end counts. `injected`: the wait of a fault before the step.
  absl::Status Begin(int64_t step, absl::Duration injected = {});
  absl::Status EndData() { return MarkForTimeline(kDataEnd); }
  absl::Status EndForward() { return MarkForTimeline(kForwardEnd); }
  absl::Status EndBackward() { return Mark(kBackwardEnd); }
  absl::Status End();

  // Blocks until the GPU has done all steps that have ended. DEADLINE_EXCEEDED
  // names the step.
  absl::Status AwaitEnd(Time deadline, const Cancellation& cancellation);

  // The times of the oldest step that has not been told and is done on the GPU;
  // does not wait. A step that is not asked for within two others is lost.
  absl::StatusOr<std::optional<Times>> Next();

 private:
  static constexpr int kSteps = 4;  // on their way at once

  enum { kBegin, kDataEnd, kForwardEnd, kBackwardEnd, kEnd, kMarks };

  // A moment that both clocks know.
  struct Anchor {
    Event event;
    int64_t ns = 0;  // of the monotonic clock
  };

  struct Step {
    std::array<Event, kMarks> marks;
    int64_t number = 0;
    absl::Duration injected;
    int anchor = -1;  // the last one before it; -1: none
  };

  StepClock(Device& device, Stream compute, Track* timeline)
      : device_(device), compute_(compute), timeline_(timeline) {}

  absl::Status Mark(int which);
  absl::Status MarkForTimeline(int which) {
    return timeline_ == nullptr ? absl::OkStatus() : Mark(which);
  }
  // Finds out what time it is on the GPU. False where the answer takes so long
  // that it says little; the last anchor stays.
  absl::StatusOr<bool> DropAnchor();
  // For a timeline it tries for a while.
  absl::Status DropFirstAnchor();
  // When the GPU came to that mark of a step with an anchor, by this process's
  // clock.
  absl::StatusOr<Time> TimeOf(const Step& step, int mark);
  absl::Status TellTimeline(const Step& step);

  Device& device_;
  const Stream compute_;
  Track* timeline_;   // null: there is none, or the GPU does not tell its time
  Stream idle_ = {};  // for anchors, which do not wait for what is computed
  // Of two, one still counts for steps under way.
  std::array<Anchor, 2> anchors_;
  int anchor_ = -1;          // -1: none yet
  int64_t anchor_step_ = 0;  // how many had ended then
  Time next_anchor_ = Time::InfinitePast();
  std::array<Step, kSteps> steps_;
  int64_t num_ended_ = 0;
  int64_t num_told_ = 0;
};

}  // namespace psring

#endif  // PSRING_WORKER_STEP_CLOCK_H_
