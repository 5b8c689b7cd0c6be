#include "tests/testing/process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "common/clock.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

std::vector<std::string> Shell(const std::string& script) {
  return {"/bin/sh", "-c", script};
}

bool Exists(pid_t pid) { return kill(pid, 0) == 0; }

TEST(ProcessTest, GivesTheExitCodeAndBothStreams) {
  const Ran ran = RunProcess(Shell("echo one; echo two >&2; exit 7"), Soon());
  EXPECT_EQ(ran.code, 7);
  EXPECT_EQ(ran.output, "one\ntwo\n");
}

TEST(ProcessTest, GivesTheSignalThatEndedIt) {
  auto process = Process::Start(Shell("echo ready; exec sleep 1000"));
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(process->WaitForOutput("ready", Soon()));
  EXPECT_EQ(process->Wait(Now()), -1);
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(Soon()), 128 + SIGTERM);
  EXPECT_EQ(process->Wait(Soon()), 128 + SIGTERM);
}

TEST(ProcessTest, AwaitsNoOutputThatCannotComeAnyMore) {
  auto process = Process::Start(Shell("echo one"));
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_FALSE(process->WaitForOutput("two", Time::InfiniteFuture()));
  EXPECT_TRUE(process->WaitForOutput("one", Time::InfiniteFuture()));
}

TEST(ProcessTest, TakesAFolderAndVariables) {
  const Ran ran = RunProcess(Shell("pwd; echo $HOME $MORE"), Soon(),
                             {"/usr", {{"HOME", "/nowhere"}, {"MORE", "x"}}});
  EXPECT_EQ(ran.output, "/usr\n/nowhere x\n");
}

TEST(ProcessTest, SaysThatAProgramCannotRun) {
  EXPECT_FALSE(Process::Start({"/no/such/program"}).ok());
}

TEST(ProcessTest, KillsTheProcessAtTheObjectsEnd) {
  pid_t pid;
  {
    auto process = Process::Start(Shell("exec sleep 1000"));
    ASSERT_TRUE(process.ok()) << process.status();
    const Process moved = *std::move(process);
    pid = moved.pid();
    EXPECT_TRUE(Exists(pid));
  }
  EXPECT_FALSE(Exists(pid));
}

}  // namespace
}  // namespace psring
