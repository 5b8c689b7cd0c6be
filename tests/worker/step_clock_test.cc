#include "worker/step_clock.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
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
  const auto clock = *StepClock::Create(device, kComputeStream);
  device.Stall(kComputeStream);  // the step before
  ASSERT_TRUE(clock->Begin().ok());
  Take(device, absl::Milliseconds(40));
  ASSERT_TRUE(clock->EndBackward().ok());
  Take(device, absl::Milliseconds(20));
  ASSERT_TRUE(clock->End().ok());
  EXPECT_FALSE((*clock->Next()).has_value());
  absl::SleepFor(absl::Milliseconds(30));  // what is not the step's
  device.Release();
  AwaitAll(device);
  const auto times = *clock->Next();
  ASSERT_TRUE(times.has_value());
  EXPECT_GE(times->compute, absl::Milliseconds(40));
  EXPECT_GE(times->exposed, absl::Milliseconds(20));
  EXPECT_LT(times->exposed, absl::Milliseconds(40));
  EXPECT_FALSE((*clock->Next()).has_value());
}

TEST(StepClock, LosesStepsThatNobodyAsksForAndKeepsTheLast) {
  FakeDevice device;
  const auto clock = *StepClock::Create(device, kComputeStream);
  for (int step = 0; step < 10; ++step) {
    ASSERT_TRUE(clock->Begin().ok());
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

}  // namespace
}  // namespace psring
