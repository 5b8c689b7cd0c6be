// Processes that die or hang without a word: everybody else ends with an error
// that names them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/address.h"
#include "tests/integration/hand_job.h"
#include "tests/testing/proc_fs.h"
#include "tests/testing/process.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::ContainsRegex;

struct Loss {
  std::string mode;
  std::string victim;
  int signal;  // SIGSTOP: it hangs, but lives
};

std::string NameOf(const ::testing::TestParamInfo<Loss>& info) {
  const Loss& loss = info.param;
  std::string name = absl::StrCat(loss.signal == SIGKILL ? "Killed" : "Hung",
                                  "_", loss.mode, "_", loss.victim);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

class LostProcess : public ::testing::TestWithParam<Loss> {};

TEST_P(LostProcess, IsNamedByAllOthersWhichEndInTime) {
  const auto& [mode, victim, signal] = GetParam();
  HandJob job({.mode = mode, .servers = 2, .worker_flags = EndlessTraining()});
  job.StartAll();
  // Two heartbeats at least, so that everybody's step is known.
  job.TrainFor(absl::Seconds(4));
  job[victim].Signal(signal);
  const Time lost = Now();
  // 10 s on a machine that has time for it; a step's timeout is a minute.
  job.ExpectOthersFail(victim,
                       {absl::StrCat("lost ", victim, " (host ", HostName(),
                                     ", pid ", job[victim].pid(), ")"),
                        ": last heard from "},
                       lost + absl::Seconds(40));
  RecordProperty("seconds",
                 static_cast<int>(absl::ToInt64Seconds(Now() - lost)));
  for (const std::string& name : job.names()) {
    if (name == victim) continue;
    EXPECT_THAT(LastLine(job[name].Output()),
                ContainsRegex("at step [1-9][0-9]*[^0-9].* [0-9.]+ ?s ago"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LostProcess,
    ::testing::Values(Loss{"ps", "ps 0", SIGKILL},  // it hosts the coordinator
                      Loss{"ps", "ps 1", SIGKILL},
                      Loss{"ps", "worker 1", SIGKILL},
                      Loss{"ps", "worker 0", SIGSTOP},
                      Loss{"ring", "worker 0", SIGKILL},  // it hosts it here
                      Loss{"ring", "worker 1", SIGKILL},
                      Loss{"ring", "worker 1", SIGSTOP}),
    NameOf);

// Nobody waits the minute that a job has to form.
TEST(WorkerWithoutItsData, IsNamedByThoseWhoWaitForIt) {
  for (const std::string mode : {"ps", "ring"}) {
    HandJob job({.mode = mode});
    const std::string& last = job.names().back();
    for (const std::string& name : job.names()) {
      if (name != last) job.Start(name);
    }
    const Time start = Now();
    Flags flags = SmallTraining();
    flags[1] = "--data=mnist:/nowhere";
    EXPECT_EQ(job.Start(last, flags).Wait(Soon()), 1);
    EXPECT_THAT(LastLine(job[last].Output()), ::testing::HasSubstr("/nowhere"));
    job.ExpectOthersFail(last,
                         {absl::StrCat(last, " (host ", HostName(), ", pid "),
                          "failed before it joined: ", "/nowhere"},
                         start + absl::Seconds(40));
  }
}

// How long workers take before they join.
class LostProcessOfLaunch : public ::testing::TestWithParam<const char*> {};

// Also where the job was forming a moment ago.
TEST_P(LostProcessOfLaunch, IsReportedLastAndGivesTheExitCode) {
  const std::string worker_program = testing::TestDirectory() + "/worker";
  testing::WriteFile(worker_program,
                     absl::StrCat("#!/bin/sh\nsleep ", GetParam(), "\nexec ",
                                  WorkerBinary(), " \"$@\"\n"));
  ASSERT_EQ(chmod(worker_program.c_str(), 0700), 0);
  Flags argv = {PsringBinary(),
                "launch",
                "--servers=2",
                "--workers=2",
                absl::StrCat("--worker-binary=", worker_program),
                "--"};
  for (const std::string& flag : EndlessTraining()) argv.push_back(flag);
  auto launch = Process::Start(argv);
  ASSERT_TRUE(launch.ok()) << launch.status();
  ASSERT_TRUE(launch->WaitForOutput("epoch 1 step", Soon()))
      << launch->Output();
  const pid_t worker = ChildWith(launch->pid(), "worker/worker ", "--rank=1 ");
  ASSERT_GT(worker, 0);
  kill(worker, SIGKILL);
  EXPECT_EQ(launch->Wait(Soon()), 128 + SIGKILL) << launch->Output();
  const std::string output = launch->Output();
  const std::string report = output.substr(output.rfind("psring launch: "));
  EXPECT_THAT(report, ContainsRegex(absl::StrCat(
                          "worker 1 \\(pid ", worker,
                          "\\) failed: killed by SIGKILL \\(Killed\\)")));
  for (const char* name : {"[ps 0] ", "[ps 1] ", "[worker 0] "}) {
    EXPECT_THAT(output, ContainsRegex(absl::StrCat(
                            "\\", name, ".*lost worker 1 \\(host .*, pid ",
                            worker, "\\)(:| at step )")));
  }
}

INSTANTIATE_TEST_SUITE_P(Delays, LostProcessOfLaunch,
                         ::testing::Values("0", "1.5"), [](const auto& test) {
                           return test.index == 0 ? "None" : "OverASecond";
                         });

}  // namespace
}  // namespace psring
