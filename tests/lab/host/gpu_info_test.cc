#include "lab/host/gpu_info.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

TEST(CommonDevice, IsTheCpuForAllWhereSomeWorkersWouldShareAGpu) {
  EXPECT_EQ(CommonDevice(2, 1), "cpu");
  EXPECT_EQ(CommonDevice(1, 1), "auto");
  EXPECT_EQ(CommonDevice(8, 8), "auto");
  EXPECT_EQ(CommonDevice(4, 0), "auto");
}

}  // namespace
}  // namespace psring
