// Hosts made of namespaces: what they are to each other, and that nothing is
// left of them.
#include "lab/host/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "tests/testing/proc_fs.h"
#include "tests/testing/process.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using testing::HasSubstr;

constexpr double kGigabit = 1e9;

// Empty when there is no such process.
std::string NetworkNamespaceOf(const std::string& pid) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/" + pid + "/ns/net", error)
      .string();
}

// The network namespaces that any process lives in.
std::set<std::string> NetworkNamespaces() {
  std::set<std::string> namespaces;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    namespaces.insert(NetworkNamespaceOf(entry.path().filename()));
  }
  return namespaces;
}

// Those that a process has made for its children.
std::set<std::string> NamespacesBelow(pid_t pid) {
  std::set<std::string> namespaces;
  for (const pid_t child : ChildrenOf(pid)) {
    namespaces.insert(NetworkNamespaceOf(absl::StrCat(child)));
  }
  namespaces.erase(NetworkNamespaceOf("self"));
  namespaces.erase("");
  return namespaces;
}

// How many of them any process still lives in.
int NumLeft(const std::set<std::string>& namespaces) {
  int left = 0;
  for (const std::string& now : NetworkNamespaces()) {
    left += static_cast<int>(namespaces.count(now));
  }
  return left;
}

class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto hosts = Hosts::Create(2, kGigabit);
    if (!hosts.ok()) GTEST_SKIP() << hosts.status();
    hosts_ = *std::move(hosts);
  }

  // What a shell's command prints on a host; its code.
  Ran RunOn(int host, const std::string& command) {
    std::vector<std::string> argv = hosts_->PrefixOf(host);
    argv.insert(argv.end(), {"/bin/sh", "-c", command});
    return RunProcess(argv, Soon());
  }

  std::unique_ptr<Hosts> hosts_;
};

TEST_F(HostsTest, HaveAddressesOfTheirOwn) {
  for (int host : {0, 1}) {
    const Ran ran =
        RunOn(host, "PATH=$PATH:/sbin:/usr/sbin ip -4 address show dev eth0");
    EXPECT_EQ(ran.code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(Hosts::AddressOf(host) + "/"));
  }
}

TEST_F(HostsTest, FindRelativePaths) {
  const Ran ran = RunOn(0, "pwd");
  EXPECT_EQ(ran.output, std::filesystem::current_path().string() + "\n");
}

TEST_F(HostsTest, StartProgramsWithAnEqualsSignInTheirPath) {
  const std::string program = testing::TempDir() + "/a=b";
  std::filesystem::remove(program);
  std::filesystem::create_symlink("/bin/echo", program);
  std::vector<std::string> argv = hosts_->PrefixOf(0);
  argv.insert(argv.end(), {program, "x = y", "c=d"});
  const Ran ran = RunProcess(argv, Soon());
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.output, "x = y c=d\n");
}

TEST_F(HostsTest, LimitTheRate) {
  const Ran ran = RunOn(1, "PATH=$PATH:/sbin:/usr/sbin tc class show dev eth0");
  EXPECT_THAT(ran.output, HasSubstr("htb"));
  EXPECT_THAT(ran.output, HasSubstr("rate 1Gbit"));
}

TEST_F(HostsTest, ShareTheLinkInLinuxsOwnWay) {
  const Ran ran = RunOn(1, "PATH=$PATH:/sbin:/usr/sbin ip route show");
  EXPECT_THAT(ran.output, HasSubstr("congctl cubic"));
}

TEST_F(HostsTest, SeeOnlyTheirOwnProcesses) {
  const Ran ran = RunOn(0, absl::StrCat("test -e /proc/", getpid(), "/fd"));
  // A host's few processes have small numbers.
  EXPECT_GT(getpid(), 100);
  EXPECT_EQ(ran.code, 1) << ran.output;
}

TEST_F(HostsTest, PassExitCodesOn) {
  EXPECT_EQ(RunOn(0, "exit 7").code, 7);
  EXPECT_EQ(RunOn(0, "kill -SEGV $$").code, 128 + SIGSEGV);
}

TEST_F(HostsTest, AProcessEndsWithItsHost) {
  std::vector<std::string> argv = hosts_->PrefixOf(0);
  argv.insert(argv.end(), {"/bin/sh", "-c", "echo here; exec sleep 1000"});
  auto process = Process::Start(argv);
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(process->WaitForOutput("here", Soon())) << process->Output();
  hosts_.reset();
  EXPECT_EQ(process->Wait(Soon()), 128 + SIGKILL);
}

TEST(Hosts, NothingIsLeftOfAKilledBench) {
  if (auto hosts = Hosts::Create(2, kGigabit); !hosts.ok()) {
    GTEST_SKIP() << hosts.status();
  }
  auto bench =
      Process::Start({PsringBinary(), "bench", "allreduce", "--hosts=3",
                      "--link=10mbit", "--sizes=1KB,10MB", "--peers=none",
                      absl::StrCat("--out=", testing::TempDir())});
  ASSERT_TRUE(bench.ok()) << bench.status();
  // The second size keeps it busy for a minute.
  ASSERT_TRUE(bench->WaitForOutput("allreduce, 3 ranks, 1 KB", Soon()))
      << bench->Output();
  const std::set<std::string> made = NamespacesBelow(bench->pid());
  EXPECT_EQ(made.size(), 4u) << "three hosts and a switch";
  bench->Signal(SIGKILL);
  EXPECT_EQ(bench->Wait(Soon()), 128 + SIGKILL);
  const Time deadline = Soon();
  while (NumLeft(made) > 0 && Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));  // the kernel tidies up
  }
  EXPECT_EQ(NumLeft(made), 0);
}

TEST(Hosts, WithoutRootTheErrorSaysWhatToDo) {
  if (geteuid() != 0) {
    EXPECT_THAT(std::string(Hosts::Create(2, kGigabit).status().message()),
                HasSubstr("sudo"));
    return;
  }
  // As a user that is nobody.
  const Ran ran =
      RunProcess({"/usr/bin/setpriv", "--reuid=65534", "--clear-groups",
                  PsringBinary(), "bench", "links", "--hosts=2", "--out=/tmp"},
                 Soon());
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("needs root. Remedy: run it with sudo"));
  EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1);
}

}  // namespace
}  // namespace psring
