#include "common/net/available_memory.h"

#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "tests/testing/test_directory.h"

namespace psring {
namespace {

constexpr int64_t kMiB = 1 << 20;

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void HostHas(int64_t mib) {
    Write("/proc/meminfo", "MemTotal:  9999999 kB\nMemAvailable:  " +
                               std::to_string(mib << 10) + " kB\n");
  }

  const std::string root_ = testing::TestDirectory();
};

TEST_F(AvailableMemoryTest, IsTheHostsWhereNothingLimitsTheProcess) {
  EXPECT_EQ(AvailableMemory(root_), std::numeric_limits<int64_t>::max());
  HostHas(500);
  EXPECT_EQ(AvailableMemory(root_), 500 * kMiB);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "max\n");
  Write("/sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(AvailableMemory(root_), 500 * kMiB);
}

TEST_F(AvailableMemoryTest, IsWhatAContainersLimitLeaves) {
  HostHas(500);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "104857600\n");
  Write("/sys/fs/cgroup/memory.current", "73400320\n");
  EXPECT_EQ(AvailableMemory(root_), 30 * kMiB);
  // What it has read from files goes when others need the room.
  Write("/sys/fs/cgroup/memory.stat",
        "anon 52428800\nfile 20971520\ninactive_file 10485760\n"
        "active_file 5242880\n");
  EXPECT_EQ(AvailableMemory(root_), 45 * kMiB);
  HostHas(20);
  EXPECT_EQ(AvailableMemory(root_), 20 * kMiB);
}

TEST_F(AvailableMemoryTest, IsWhatTheTightestGroupLeaves) {
  HostHas(500);
  Write("/proc/self/cgroup", "0::/slurm/job_1/step_0\n");
  Write("/sys/fs/cgroup/slurm/job_1/memory.max", "104857600\n");
  Write("/sys/fs/cgroup/slurm/job_1/memory.current", "10485760\n");
  Write("/sys/fs/cgroup/slurm/job_1/step_0/memory.max", "209715200\n");
  Write("/sys/fs/cgroup/slurm/job_1/step_0/memory.current", "0\n");
  EXPECT_EQ(AvailableMemory(root_), 90 * kMiB);
}

TEST_F(AvailableMemoryTest, KnowsTheFirstVersionOfGroups) {
  HostHas(500);
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/a\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
  Write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n");
  Write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "94371840\n");
  Write("/sys/fs/cgroup/memory/a/memory.stat",
        "total_inactive_file 20971520\ntotal_active_file 0\n");
  EXPECT_EQ(AvailableMemory(root_), 30 * kMiB);
}

// Only root may make groups, and not everywhere.
TEST_F(AvailableMemoryTest, SeesALimitOfThisKernel) {
  const std::string mount = "/sys/fs/cgroup/memory";
  const std::string group = mount + "/psring_test_" + std::to_string(getpid());
  std::error_code error;
  if (!std::filesystem::create_directory(group, error)) {
    GTEST_SKIP() << "no group can be made in " << mount;
  }
  std::ofstream(group + "/memory.limit_in_bytes") << 64 * kMiB;
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream(group + "/cgroup.procs") << getpid() << std::flush;
    const int64_t available = AvailableMemory();
    _exit(available > 0 && available <= 64 * kMiB ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::filesystem::remove(group, error);
}

}  // namespace
}  // namespace psring
