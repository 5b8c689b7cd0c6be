// Everybody ends: when training is done, and when somebody presses Ctrl-C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/net/socket.h"
#include "tests/integration/hand_job.h"
#include "tests/testing/proc_fs.h"

namespace psring {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// What the processes share, from which it follows what they could leave.
std::set<std::string> ArenasOf(const std::vector<pid_t>& pids) {
  std::set<std::string> arenas;
  for (pid_t pid : pids) arenas.merge(SharedMemoryOf(pid));
  return arenas;
}

// `arenas`: the memory that they shared. It has no name, and is freed with the
// last process that maps it.
void ExpectNothingLeft(const std::vector<pid_t>& pids, int port,
                       const std::set<std::string>& arenas = {}) {
  for (pid_t pid : pids) EXPECT_FALSE(IsAlive(pid)) << CommandLine(pid);
  for (pid_t pid : AllProcesses()) {
    for (const std::string& arena : SharedMemoryOf(pid)) {
      EXPECT_FALSE(arenas.contains(arena)) << CommandLine(pid);
    }
  }
  Context context;
  const auto again = Socket::Bind(context, "127.0.0.1", port);
  EXPECT_TRUE(again.ok()) << again.status();
}

class Shutdown : public ::testing::TestWithParam<std::string> {};

TEST_P(Shutdown, HappensByItselfWhenTrainingIsDone) {
  HandJob job({.mode = GetParam(), .servers = 2});
  job.StartAll();
  job.ExpectAllEndWell();
  ExpectNothingLeft(job.pids(), job.port());
}

TEST_P(Shutdown, OfOneWorkerByCtrlCIsToldToAllOthers) {
  HandJob job({.mode = GetParam(), .worker_flags = EndlessTraining()});
  job.StartAll();
  job.TrainFor(absl::ZeroDuration());
  const std::set<std::string> arenas = ArenasOf(job.pids());
  EXPECT_THAT(arenas, Not(IsEmpty()));
  Process& worker = job["worker 1"];
  worker.Signal(SIGINT);
  EXPECT_EQ(worker.Wait(Soon()), 128 + SIGINT) << worker.Output();
  EXPECT_THAT(LastLine(worker.Output()),
              HasSubstr("interrupted by Interrupt (signal 2)"));
  job.ExpectOthersFail("worker 1",
                       {absl::StrCat("worker 1 (host ", HostName(), ", pid ",
                                     worker.pid(), ") failed"),
                        ": interrupted by Interrupt (signal 2)"});
  ExpectNothingLeft(job.pids(), job.port(), arenas);
}

TEST_P(Shutdown, OfTheCoordinatorsProcessByCtrlCIsToldToAllOthers) {
  HandJob job({.mode = GetParam(), .worker_flags = EndlessTraining()});
  job.StartAll();
  job.TrainFor(absl::ZeroDuration());
  const std::set<std::string> arenas = ArenasOf(job.pids());
  EXPECT_THAT(arenas, Not(IsEmpty()));
  const std::string host = job.names().front();
  job[host].Signal(SIGINT);
  EXPECT_EQ(job[host].Wait(Soon()), 128 + SIGINT) << job[host].Output();
  job.ExpectOthersFail(host, {absl::StrCat(host, " (host ", HostName(),
                                           ", pid ", job[host].pid(), ")")});
  ExpectNothingLeft(job.pids(), job.port(), arenas);
}

TEST_P(Shutdown, OfAJobThatStillWaitsForSomebodyByCtrlC) {
  HandJob job({.mode = GetParam()});
  const std::string host = job.names().front();
  job.Start(host);
  job[host].Signal(SIGINT);
  EXPECT_EQ(job[host].Wait(Soon()), 128 + SIGINT) << job[host].Output();
  EXPECT_THAT(LastLine(job[host].Output()), HasSubstr("interrupted"));
  ExpectNothingLeft(job.pids(), job.port());
}

TEST_P(Shutdown, OfALaunchedJobByCtrlCLeavesNothing) {
  Flags argv = {PsringBinary(), "launch", "--mode=" + GetParam(), "--"};
  for (const std::string& flag : EndlessTraining()) argv.push_back(flag);
  auto launch = Process::Start(argv);
  ASSERT_TRUE(launch.ok()) << launch.status();
  ASSERT_TRUE(launch->WaitForOutput("epoch 1 step", Soon()))
      << launch->Output();
  const std::vector<pid_t> children = ChildrenOf(launch->pid());
  EXPECT_GE(children.size(), 2u);
  const std::set<std::string> arenas = ArenasOf(children);
  EXPECT_THAT(arenas, Not(IsEmpty()));
  std::vector<int> ports;
  for (pid_t child : children) {
    for (int port : ListeningPorts(child)) ports.push_back(port);
  }
  // Ranks of a ring on one host share memory: only the coordinator listens.
  EXPECT_GE(ports.size(), GetParam() == "ring" ? 1u : 2u);
  launch->Signal(SIGINT);
  EXPECT_EQ(launch->Wait(Soon()), 128 + SIGINT) << launch->Output();
  EXPECT_EQ(LastLine(launch->Output()),
            "psring launch: interrupted; all processes have ended");
  for (int port : ports) ExpectNothingLeft(children, port, arenas);
}

INSTANTIATE_TEST_SUITE_P(Modes, Shutdown, ::testing::Values("ps", "ring"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace psring
