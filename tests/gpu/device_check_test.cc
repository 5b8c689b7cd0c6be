// Of the checks themselves on a GPU of host memory, and of this host's GPUs
// where it has any.
#include "gpu/device_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A GPU whose kernels forget the scale.
class WrongDevice : public FakeDevice {
 public:
  absl::Status Update(const OptimizerFormula& formula, const float* gradient,
                      float scale, float* parameters,
                      absl::Span<float* const> slots, int64_t num_elements,
                      Stream stream) override {
    return FakeDevice::Update(formula, gradient, 1.0f, parameters, slots,
                              num_elements, stream);
  }
};

// A GPU by whose clock everything takes a millisecond.
class TimedDevice : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  absl::StatusOr<absl::Duration> Elapsed(Event begin, Event end) override {
    const auto elapsed = FakeDevice::Elapsed(begin, end);
    if (!elapsed.ok()) return elapsed;
    return absl::Milliseconds(1);
  }
};

TEST(CheckOptimizers, PassesWhatComputesAsTheHostDoes) {
  FakeDevice device;
  const absl::Status status =
      CheckOptimizers(device, 1000, Soon(), Cancellation());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CheckOptimizers, NamesTheOptimizerAndTheElement) {
  WrongDevice device;
  const absl::Status status =
      CheckOptimizers(device, 1000, Soon(), Cancellation());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("sgd"), HasSubstr("parameter 0")));
}

TEST(CheckOptimizers, NoticesALostUpdate) {
  for (const int n : {1, 2, 3, 7, 15}) {
    FakeDevice device;
    device.DropUpdates(n);
    EXPECT_EQ(CheckOptimizers(device, 100, Soon(), Cancellation()).code(),
              absl::StatusCode::kDataLoss)
        << "every " << n;
  }
}

TEST(MeasureCopies, GivesRatesAndLeavesNothingLocked) {
  FakeDevice device;
  const auto rates = MeasureCopies(device, 1 << 20, Soon(), Cancellation());
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_GT(rates->to_device, 0);
  EXPECT_GT(rates->to_host, 0);
  EXPECT_GT(rates->both, 0);
  EXPECT_EQ(device.num_registered(), 0);
  EXPECT_EQ(device.allocated_bytes(), 0);
}

TEST(MeasureCopies, GoesByTheClockOfTheGpu) {
  TimedDevice device;
  const auto rates = MeasureCopies(device, 1 << 20, Soon(), Cancellation());
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_DOUBLE_EQ(rates->to_device, 1000.0 * (1 << 20));
  EXPECT_DOUBLE_EQ(rates->to_host, 1000.0 * (1 << 20));
  EXPECT_DOUBLE_EQ(rates->both, 2000.0 * (1 << 20));
}

TEST(MeasurePeerCopy, GoesByTheClockOfTheGpuThatCopies) {
  TimedDevice first(0);
  FakeDevice second(1);
  const auto copy =
      MeasurePeerCopy(first, second, 1 << 16, Soon(), Cancellation());
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_DOUBLE_EQ(copy->rate, 1000.0 * (1 << 16));
}

// Once they are asked to reach each other; before, a real one copies through
// the host.
TEST(MeasurePeerCopy, SaysWhetherBothReachEachOther) {
  FakeDevice first(0);
  FakeDevice second(1);
  auto copy = MeasurePeerCopy(first, second, 1 << 16, Soon(), Cancellation());
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_GT(copy->rate, 0);
  EXPECT_TRUE(copy->direct);
  second.CanReachPeers(false);
  copy = MeasurePeerCopy(first, second, 1 << 16, Soon(), Cancellation());
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_FALSE(copy->direct);
}

TEST(ThisHostsGpus, ComputeAsTheHostDoes) {
  const auto all = ListCudaDevices();
  if (!all.ok()) GTEST_SKIP() << all.status().message();
  for (const DeviceInfo& info : *all) {
    auto device = OpenCudaDevice(info.index);
    ASSERT_TRUE(device.ok()) << device.status();
    const absl::Status status =
        CheckOptimizers(**device, 1000003, Soon(), Cancellation());
    EXPECT_TRUE(status.ok()) << status;
  }
}

// What other streams write at once is not wiped by the zeroing of new memory.
TEST(ThisHostsGpus, GiveMemoryThatIsZeroForEveryStream) {
  const auto all = ListCudaDevices();
  if (!all.ok()) GTEST_SKIP() << all.status().message();
  const auto device = *OpenCudaDevice((*all)[0].index);
  const Stream stream = *device->CreateStream();
  const Event event = *device->CreateEvent();
  constexpr int64_t kBytes = int64_t{1} << 26;
  std::vector<float> ones(kBytes / 4, 1.0f), back(kBytes / 4);
  ASSERT_TRUE(device->RegisterHost(ones.data(), kBytes).ok());
  ASSERT_TRUE(device->RegisterHost(back.data(), kBytes).ok());
  for (int i = 0; i < 20; ++i) {
    void* const data = *device->Allocate(kBytes);
    ASSERT_TRUE(device->Copy(data, ones.data(), kBytes, stream).ok());
    ASSERT_TRUE(device->Copy(back.data(), data, kBytes, stream).ok());
    ASSERT_TRUE(device->Record(event, stream).ok());
    ASSERT_TRUE(Await(*device, event, Soon(), Cancellation()).ok());
    EXPECT_EQ(back, ones);
    device->Free(data);
  }
  device->UnregisterHost(ones.data());
  device->UnregisterHost(back.data());
}

}  // namespace
}  // namespace psring
