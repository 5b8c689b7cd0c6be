#include "common/host_cores.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using testing::TestDirectory;
using testing::WriteFile;

class CoresOfQuotaTest : public ::testing::Test {
 protected:
  void Write(const std::string& group, const std::string& file,
             const std::string& text) {
    const std::string directory = root_ + "/sys/fs/cgroup" + group;
    std::filesystem::create_directories(directory);
    WriteFile(directory + "/" + file, text);
  }
  void Limit1(const std::string& group, const std::string& quota,
              const std::string& period = "100000\n") {
    Write(group, "cpu.cfs_quota_us", quota);
    Write(group, "cpu.cfs_period_us", period);
  }

  int CoresOf(const std::string& membership) {
    std::filesystem::create_directories(root_ + "/proc/self");
    WriteFile(root_ + "/proc/self/cgroup", membership);
    return CoresOfQuota(root_);
  }

  const std::string root_ = TestDirectory();
};

// As in a container of Docker or Kubernetes, whose root is its own group.
TEST_F(CoresOfQuotaTest, OfAContainerIsItsLimit) {
  Write("", "cpu.max", "400000 100000\n");
  EXPECT_EQ(CoresOf("0::/\n"), 4);
}

// More threads than that would be stopped for the rest of every period.
TEST_F(CoresOfQuotaTest, IsRoundedDownToOneAtLeast) {
  Write("", "cpu.max", "350000 100000\n");
  EXPECT_EQ(CoresOf("0::/\n"), 3);
  Write("", "cpu.max", "25000 100000\n");
  EXPECT_EQ(CoresOf("0::/\n"), 1);
}

TEST_F(CoresOfQuotaTest, IsTheLeastOfTheGroupsAroundAProcess) {
  Write("", "cpu.max", "max 100000\n");
  Write("/pods", "cpu.max", "200000 100000\n");
  Write("/pods/pod", "cpu.max", "800000 100000\n");
  EXPECT_EQ(CoresOf("0::/pods/pod\n"), 2);
  EXPECT_EQ(CoresOf("0::/pods/other\n"), 2);
  EXPECT_EQ(CoresOf("0::/else\n"), 0);
}

TEST_F(CoresOfQuotaTest, IsFoundInVersion1) {
  const std::string docker =
      "5:memory:/docker/1f\n4:cpu,cpuacct:/docker/1f\n0::/\n";
  EXPECT_EQ(CoresOf(docker), 0);
  Limit1("/cpu,cpuacct", "-1\n");
  Limit1("/cpu,cpuacct/docker/1f", "600000\n");
  EXPECT_EQ(CoresOf(docker), 6);
  // Within the container, where the kernel tells the host's path.
  Limit1("/cpu,cpuacct", "300000\n");
  EXPECT_EQ(CoresOf(docker), 3);
  // Under the name of one controller.
  Limit1("/cpu/docker/1f", "50000\n", "25000\n");
  EXPECT_EQ(CoresOf("4:cpu:/docker/1f\n"), 2);
}

TEST_F(CoresOfQuotaTest, OfNonsenseIsNone) {
  Write("", "cpu.max", "many\n");
  EXPECT_EQ(CoresOf(""), 0);
  EXPECT_EQ(CoresOf("0::\n::\nx\n0::/\n"), 0);
  Write("", "cpu.max", "100000 0\n");
  EXPECT_EQ(CoresOf("0::/\n"), 0);
  Write("", "cpu.max", "-5 100000\n");
  EXPECT_EQ(CoresOf("0::/\n"), 0);
}

TEST(HostCores, AreAtLeastOne) { EXPECT_GE(HostCores(), 1); }

}  // namespace
}  // namespace psring
