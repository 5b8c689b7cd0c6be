// `psring gpu-check` where there is nothing to check.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "lab/host/gpu_info.h"
#include "tests/testing/run_psring.h"

namespace psring {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

TEST(GpuCheck, WithoutAGpuSaysWhatIsMissingAndEndsWith3) {
  const auto cuda = FindCuda();
  if (cuda.has_value() && cuda->num_devices > 0) GTEST_SKIP() << "has a GPU";
  const Ran ran = RunPsring({"gpu-check"});
  EXPECT_EQ(ran.code, 3) << ran.output;
  EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1);
  EXPECT_THAT(ran.output, AnyOf(HasSubstr("built without CUDA"),
                                HasSubstr("no CUDA driver works on this host"),
                                HasSubstr("no GPU that CUDA can use")));
}

// Also on a host that has a driver that works.
class DriverThatDoesNotWork : public ::testing::Test {
 protected:
  DriverThatDoesNotWork() { setenv("LD_LIBRARY_PATH", "tests/testing", 1); }
  ~DriverThatDoesNotWork() override { unsetenv("LD_LIBRARY_PATH"); }
};

TEST_F(DriverThatDoesNotWork, EndsGpuCheckWith3) {
  const Ran ran = RunPsring({"gpu-check"});
  EXPECT_EQ(ran.code, 3) << ran.output;
  EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1);
  EXPECT_THAT(ran.output,
              AnyOf(HasSubstr("built without CUDA"),
                    HasSubstr("CUDA driver does not work on this host")));
}

TEST_F(DriverThatDoesNotWork, IsNamedByItsVersionWhereItIsTooOld) {
  setenv("FAKE_CUDA_VERSION", "10020", 1);
  const Ran ran = RunPsring({"gpu-check"});
  unsetenv("FAKE_CUDA_VERSION");
  EXPECT_EQ(ran.code, 3) << ran.output;
  EXPECT_THAT(ran.output, AnyOf(HasSubstr("built without CUDA"),
                                HasSubstr("the driver is for CUDA 10.2")));
}

TEST_F(DriverThatDoesNotWork, IsSeenByDoctor) {
  EXPECT_THAT(RunPsring({"doctor"}).output,
              HasSubstr("driver for 13.0, 0 device(s)"));
}

TEST(GpuCheck, AWrongSizeIsNamed) {
  const Ran ran = RunPsring({"gpu-check", "--size=big"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.output, HasSubstr("--size: \"big\""));
}

}  // namespace
}  // namespace psring
