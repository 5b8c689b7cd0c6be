#include "gpu/device_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/fake_device.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Layout LayoutOf(int64_t num_elements) {
  proto::TensorShape tensor;
  tensor.set_name("weight");
  tensor.add_shape(num_elements);
  return *Layout::Create({tensor}, 1 << 20);
}

TEST(DeviceModel, IsOneZeroedAllocationForEachOfItsParts) {
  FakeDevice device;
  {
    const auto model = DeviceModel::Create(device, LayoutOf(32), 2);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->parameters.data()[31], 0.0f);
    EXPECT_EQ(model->SlotsAt(16)[1], model->slots[1].data() + 16);
    EXPECT_EQ(device.allocated_bytes(), 4 * 32 * 4);
  }
  EXPECT_EQ(device.allocated_bytes(), 0);
}

TEST(DeviceModel, SaysWhichPartHasNoRoom) {
  FakeDevice device(0, /*memory_bytes=*/3 * 128);
  const auto model = DeviceModel::Create(device, LayoutOf(32), 2);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(model.status().message()),
              AllOf(HasSubstr("the optimizer's state 2 of 2"),
                    HasSubstr("128 bytes"), HasSubstr("0 of 384 are free")));
  EXPECT_EQ(device.allocated_bytes(), 0);
}

}  // namespace
}  // namespace psring
