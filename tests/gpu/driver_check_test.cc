#include "gpu/driver_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace psring {
namespace {

using ::testing::HasSubstr;

TEST(CudaVersionName, IsWhatNvidiaCallsIt) {
  EXPECT_EQ(CudaVersionName(12080), "12.8");
  EXPECT_EQ(CudaVersionName(13000), "13.0");
}

// CUDA gives the same error for both.
TEST(CannotStartCuda, TellsADriverThatIsTooOldFromNone) {
  const std::string error = "CUDA driver version is insufficient";
  const absl::Status none = CannotStartCuda(0, 13000, error);
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(none.message()),
              HasSubstr("no CUDA driver works on this host"));
  const absl::Status old = CannotStartCuda(12080, 13000, error);
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(old.message(),
            "the driver is for CUDA 12.8, and this build needs CUDA 13.0: "
            "install a newer driver, or build psring with CUDA 12");
}

TEST(CannotStartCuda, SaysWhatIsWrongWithADriverThatIsNewEnough) {
  const absl::Status status =
      CannotStartCuda(12080, 12090, "system has unsupported display driver");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("this host: system has unsupported display driver"));
}

TEST(CheckGeneration, RefusesWhatIsOlderThanItsKernels) {
  DeviceInfo gpu;
  gpu.index = 1;
  gpu.name = "Tesla V100";
  for (const char* capability : {"7.5", "8.0", "10.0"}) {
    gpu.compute_capability = capability;
    EXPECT_TRUE(CheckGeneration(gpu).ok()) << capability;
  }
  gpu.compute_capability = "7.0";
  const absl::Status old = CheckGeneration(gpu);
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(old.message(),
            "GPU 1 (Tesla V100) has compute capability 7.0, and psring needs "
            "7.5 (Turing) or newer");
}

}  // namespace
}  // namespace psring
