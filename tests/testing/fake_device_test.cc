#include "tests/testing/fake_device.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "common/clock.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

TEST(FakeDevice, AStreamWaitsForAnEventAndNotForWhatComesAfterIt) {
  FakeDevice device;
  const Cancellation cancellation;
  float* const data = static_cast<float*>(*device.Allocate(64));
  const Stream side = *device.CreateStream();
  const Event computed = *device.CreateEvent();
  const Event scaled = *device.CreateEvent();
  device.Enqueue(kComputeStream, [=] {
    data[0] = 3.0f;
    return absl::OkStatus();
  });
  ASSERT_TRUE(device.Record(computed, kComputeStream).ok());
  device.Stall(kComputeStream);
  ASSERT_TRUE(device.WaitFor(side, computed).ok());
  ASSERT_TRUE(device.Record(computed, kComputeStream).ok());  // never done
  ASSERT_TRUE(device.Scale(data, 2.0f, 1, side).ok());
  ASSERT_TRUE(device.Record(scaled, side).ok());
  ASSERT_TRUE(Await(device, scaled, Soon(), cancellation).ok());
  EXPECT_EQ(data[0], 6.0f);
  EXPECT_FALSE(*device.IsDone(computed));
  device.Release();
  EXPECT_TRUE(Await(device, computed, Soon(), cancellation).ok());
}

// As cudaMalloc's memory does, whose zeroing is work of the compute stream.
TEST(FakeDevice, MemoryIsZeroBehindWhatTheComputeStreamHolds) {
  FakeDevice device;
  bool computed = false;
  device.Enqueue(kComputeStream, [&] {
    absl::SleepFor(absl::Milliseconds(20));
    computed = true;
    return absl::OkStatus();
  });
  const float* const data = static_cast<float*>(*device.Allocate(64));
  EXPECT_TRUE(computed);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(data[i], 0.0f);
}

TEST(FakeDevice, CountsWhatIsPutIntoItsStreams) {
  FakeDevice device;
  float* const data = static_cast<float*>(*device.Allocate(64));
  const Event event = *device.CreateEvent();
  const int64_t before = device.num_calls();
  ASSERT_TRUE(device.Zero(data, 64, kComputeStream).ok());
  ASSERT_TRUE(device.Scale(data, 2.0f, 16, kComputeStream).ok());
  ASSERT_TRUE(device.Copy(data, data + 8, 32, kComputeStream).ok());
  ASSERT_TRUE(device.Record(event, kComputeStream).ok());
  ASSERT_TRUE(device.WaitFor(kComputeStream, event).ok());
  EXPECT_EQ(device.num_calls() - before, 5);
  device.AwaitIdle();
}

TEST(FakeDevice, AnErrorBreaksWhatComesAfterIt) {
  FakeDevice device;
  const Event event = *device.CreateEvent();
  device.Enqueue(kComputeStream,
                 [] { return absl::InternalError("illegal address"); });
  device.Record(event, kComputeStream).IgnoreError();  // broken by now or not
  EXPECT_EQ(Await(device, event, Soon(), Cancellation()).message(),
            "illegal address");
}

TEST(FakeDevice, RefusesMemoryThatItCannotReach) {
  FakeDevice device(0, /*memory_bytes=*/128);
  std::vector<float> host(16);
  void* const data = *device.Allocate(64);
  EXPECT_FALSE(device.Copy(data, host.data(), 64, kComputeStream).ok());
  ASSERT_TRUE(device.RegisterHost(host.data(), 64).ok());
  EXPECT_TRUE(device.Copy(data, host.data(), 64, kComputeStream).ok());
  EXPECT_FALSE(device.Zero(host.data(), 64, kComputeStream).ok());
  EXPECT_EQ(device.Allocate(65).status().code(),
            absl::StatusCode::kResourceExhausted);
  device.Free(data);
  EXPECT_EQ(device.allocated_bytes(), 0);
}

TEST(FakeDevice, GuardedMemoryIsTheDevicesAlone) {
  FakeDevice device(0, 1 << 20, FakeMemory::kGuarded);
  std::vector<float> host = {3.0f, 4.0f};
  float* const data = static_cast<float*>(*device.Allocate(8));
  ASSERT_TRUE(device.RegisterHost(host.data(), 8).ok());
  ASSERT_TRUE(device.Copy(data, host.data(), 8, kComputeStream).ok());
  ASSERT_TRUE(device.Scale(data + 1, 2.0f, 1, kComputeStream).ok());
  const Event done = *device.CreateEvent();
  ASSERT_TRUE(device.Record(done, kComputeStream).ok());
  ASSERT_TRUE(Await(device, done, Soon(), Cancellation()).ok());
  EXPECT_EQ(device.Reach(data)[0], 3.0f);
  EXPECT_EQ(*device.Reach(data + 1), 8.0f);
  const volatile float* const touched = data;
  EXPECT_DEATH(static_cast<void>(*touched), "");
  device.Free(data);
}

TEST(Await, EndsAtItsDeadlineAndWhenTheProcessIsCancelled) {
  FakeDevice device;
  Cancellation cancellation;
  const Event event = *device.CreateEvent();
  device.Stall(kComputeStream);
  ASSERT_TRUE(device.Record(event, kComputeStream).ok());
  EXPECT_EQ(Await(device, event, Now(), cancellation).code(),
            absl::StatusCode::kDeadlineExceeded);
  cancellation.Cancel(absl::UnavailableError("lost worker 1"));
  EXPECT_EQ(Await(device, event, Soon(), cancellation).message(),
            "lost worker 1");
}

}  // namespace
}  // namespace psring
