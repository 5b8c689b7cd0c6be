#include "worker/step_clock.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "common/clock.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

void Take(FakeDevice& device, absl::Duration time) {
  device.Enqueue(kComputeStream, [time] {
    absl::SleepFor(time);
    return absl::OkStatus();
  });
}

void AwaitAll(FakeDevice& device) {
  const Event event = *device.CreateEvent();
  ASSERT_TRUE(device.Record(event, kComputeStream).ok());
  ASSERT_TRUE(Await(device, event, Soon(), Cancellation()).ok());
}

TEST(StepClock, TellsTheGpusTimesAndNotTheProcessors) {
  FakeDevice device;
  Track track("GPU");  // for which it asks until it knows what time it is there
  const auto clock = *StepClock::Create(device, kComputeStream, &track);
  device.Stall(kComputeStream);  // the step before
  ASSERT_TRUE(clock->Begin(7, absl::Seconds(3)).ok());
  Take(device, absl::Milliseconds(1000));
  ASSERT_TRUE(clock->EndBackward().ok());
  Take(device, absl::Milliseconds(20));  // or more, on a busy machine
  ASSERT_TRUE(clock->End().ok());
  EXPECT_FALSE((*clock->Next()).has_value());
  absl::SleepFor(absl::Milliseconds(30));  // what is not the step's
  const Time released = Now();
  device.Release();
  AwaitAll(device);
  const Time after = Now();
  const auto times = *clock->Next();
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(times->step, 7);
  EXPECT_EQ(times->injected, absl::Seconds(3));
  EXPECT_GE(times->compute, absl::Milliseconds(1000));
  EXPECT_GE(times->exposed, absl::Milliseconds(20));
  EXPECT_LT(times->exposed, absl::Milliseconds(1000));
  // Where backward ended on the GPU, long after the processor was through.
  ASSERT_TRUE(times->arrived.has_value());
  EXPECT_GE(*times->arrived, released + absl::Milliseconds(998));
  EXPECT_LE(*times->arrived + times->exposed, after + absl::Milliseconds(2));
  EXPECT_FALSE((*clock->Next()).has_value());
}

TEST(StepClock, LosesStepsThatNobodyAsksForAndKeepsTheLast) {
  FakeDevice device;
  const auto clock = *StepClock::Create(device, kComputeStream);
  for (int step = 0; step < 10; ++step) {
    ASSERT_TRUE(clock->Begin(step).ok());
    if (step == 9) Take(device, absl::Milliseconds(15));
    ASSERT_TRUE(clock->EndBackward().ok());
    ASSERT_TRUE(clock->End().ok());
  }
  AwaitAll(device);
  int num_told = 0;
  absl::Duration last;
  while (const auto times = *clock->Next()) {
    last = times->compute;
    ++num_told;
  }
  EXPECT_EQ(num_told, 3);
  EXPECT_GE(last, absl::Milliseconds(15));
}

// Of a step that computes 10 ms each of data, forward and backward, and waits
// for 10 ms.
void TakeStep(FakeDevice& device, StepClock& clock, int64_t step) {
  const auto take = [&] { Take(device, absl::Milliseconds(10)); };
  ASSERT_TRUE(clock.Begin(step).ok());
  take();
  ASSERT_TRUE(clock.EndData().ok());
  take();
  ASSERT_TRUE(clock.EndForward().ok());
  take();
  ASSERT_TRUE(clock.EndBackward().ok());
  take();
  ASSERT_TRUE(clock.End().ok());
}

TEST(StepClock, TellsTheTimelineWhatTheGpuDidByTheProcessesClock) {
  FakeDevice device;
  Track track("GPU");
  const auto clock = *StepClock::Create(device, kComputeStream, &track);
  // Longer than the interval between two looks at the GPU's clock.
  constexpr int kSteps = 30;
  for (int step = 0; step < kSteps; ++step) {
    const int64_t before = NowNanos();
    TakeStep(device, *clock, step);
    AwaitAll(device);
    const int64_t after = NowNanos();
    ASSERT_TRUE((*clock->Next()).has_value());
    const char* const kNames[] = {"gpu step", "gpu data", "gpu forward",
                                  "gpu backward", "gpu wait"};
    int64_t last_end = 0;
    for (const std::string name : kNames) {
      const auto event = track.Take();
      ASSERT_TRUE(event.has_value());
      EXPECT_EQ(event->name, name);
      EXPECT_EQ(event->args.step, step);
      // To what the two clocks may differ by.
      constexpr int64_t kDoubt = 2'000'000;
      EXPECT_GE(event->begin_ns, before - kDoubt) << name;
      EXPECT_LE(event->end_ns, after + kDoubt) << name;
      const int parts = name == "gpu step" ? 4 : 1;
      EXPECT_GE(event->end_ns - event->begin_ns, parts * 10'000'000) << name;
      if (parts == 4) continue;
      if (last_end > 0) {
        EXPECT_EQ(event->begin_ns, last_end) << name;
      }
      last_end = event->end_ns;
    }
  }
  EXPECT_FALSE(track.Take().has_value());
}

TEST(StepClock, NeedsAGpuThatAnswersOnlyForATimeline) {
  FakeDevice device;
  EXPECT_TRUE(StepClock::Create(device, kComputeStream).ok());
  Track track("GPU");
  device.Stall(kComputeStream);  // not the stream that is asked
  EXPECT_TRUE(StepClock::Create(device, kComputeStream, &track).ok());
  device.Release();
}

}  // namespace
}  // namespace psring
