#include "gpu/near_cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <string>
#include <thread>

#include "common/net/cancellation.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::TestDirectory;
using testing::WriteFile;

constexpr char kBus[] = "0000:3b:00.0";

std::vector<int> CoresIn(const std::string& text) {
  const std::string sysfs = TestDirectory();
  const std::string device = sysfs + "/bus/pci/devices/" + kBus;
  std::filesystem::create_directories(device);
  WriteFile(device + "/local_cpulist", text);
  return CoresNear(kBus, sysfs);
}

TEST(CoresNear, ReadsTheKernelsList) {
  EXPECT_THAT(CoresIn("0-2,8-9,12\n"), ElementsAre(0, 1, 2, 8, 9, 12));
  EXPECT_THAT(CoresIn("7\n"), ElementsAre(7));
}

TEST(CoresNear, AreUnknownWhereTheKernelSaysNothing) {
  EXPECT_THAT(CoresIn("\n"), IsEmpty());
  EXPECT_THAT(CoresIn("all\n"), IsEmpty());
  EXPECT_THAT(CoresIn("0-99999999\n"), IsEmpty());
  EXPECT_THAT(CoresNear("no such device", TestDirectory()), IsEmpty());
}

TEST(NumNear, CountsTheGpusOfANode) {
  const std::string sysfs = TestDirectory();
  const auto put = [&](const std::string& bus, const std::string& cores) {
    const std::string device = sysfs + "/bus/pci/devices/" + bus;
    std::filesystem::create_directories(device);
    WriteFile(device + "/local_cpulist", cores);
  };
  put("a", "0-7\n");
  put("b", "8-15\n");
  put("c", "0-7\n");
  EXPECT_EQ(NumNear("a", {"a", "b", "c"}, sysfs), 2);
  EXPECT_EQ(NumNear("b", {"a", "b", "c"}, sysfs), 1);
  // Of which the kernel says nothing: they share all cores.
  EXPECT_EQ(NumNear("x", {"x", "y"}, sysfs), 2);
}

std::vector<int> Allowed() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

TEST(KeepTo, HoldsForAllThreadsAndWhatTheyStart) {
  const std::vector<int> before = Allowed();
  const int last = before.back();
  Cancellation kept;
  std::vector<int> others;
  std::vector<int> childs;
  std::thread other([&] {
    EXPECT_FALSE(kept.SleepUntil(Soon()).ok());
    others = Allowed();
    std::thread([&] { childs = Allowed(); }).join();
  });
  // This process may not use the first of them.
  EXPECT_EQ(KeepTo({CPU_SETSIZE - 1, last}), 1);
  kept.Cancel(absl::CancelledError("done"));
  other.join();
  EXPECT_THAT(Allowed(), ElementsAre(last));
  EXPECT_THAT(others, ElementsAre(last));
  EXPECT_THAT(childs, ElementsAre(last));
}

TEST(KeepTo, LeavesAProcessThatMayUseNoneOfThemAlone) {
  const std::vector<int> before = Allowed();
  EXPECT_EQ(KeepTo({CPU_SETSIZE - 1}), 0);
  EXPECT_EQ(KeepTo({}), 0);
  EXPECT_EQ(Allowed(), before);
}

}  // namespace
}  // namespace psring
