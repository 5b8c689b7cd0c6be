// The program itself, with a stand-in for the processes of a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "lab/host/supervisor.h"
#include "tests/testing/process.h"
#include "tests/testing/run_psring.h"

namespace psring {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string FileText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Whether the process has ended. (As a zombie it may wait for init.)
bool IsGone(int pid) {
  const std::string stat = FileText("/proc/" + std::to_string(pid) + "/stat");
  return stat.empty() || stat.find(") Z") != std::string::npos;
}

TEST(Launch, PrefixesEveryProcessAndEndsWithZero) {
  const Ran ran = RunPsring({"launch", "--workers=2", "--servers=2"});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("[worker 0] pid "));
  EXPECT_THAT(ran.output, HasSubstr("[worker 1] pid "));
}

TEST(Launch, KeepsEveryProcesssOutputInTheLogDir) {
  const std::string dir = testing::TempDir() + "/new/logs";
  const Ran ran =
      RunPsring({"launch", "--mode=ring", "--workers=2", "--log-dir=" + dir});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(FileText(dir + "/worker-0.log"), HasSubstr("pid "));
  EXPECT_THAT(FileText(dir + "/worker-1.log"), Not(HasSubstr("[")));
}

TEST(Launch, AnUnwritableLogDirIsNamedBeforeAnythingStarts) {
  const Ran ran =
      RunPsring({"launch", "--workers=2", "--log-dir=/dev/null/logs"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("--log-dir=/dev/null/logs"));
  EXPECT_THAT(ran.output, Not(HasSubstr("[worker")));
}

TEST(Launch, ReportsTheFailureLastAndEndsWithItsCode) {
  const Ran ran = RunPsring({"launch", "--workers=2", "--",
                             "--fake-fail-rank=1", "--fake-fail-code=7"});
  EXPECT_EQ(ran.code, 7) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("psring launch: worker 1 (pid "));
  EXPECT_THAT(ran.output, HasSubstr("failed: exit code 7; its last lines:"));
  EXPECT_THAT(ran.output, testing::EndsWith("  something broke\n"));
}

TEST(Launch, AKilledProcessGives128AndTheSignal) {
  const Ran ran = RunPsring({"launch", "--workers=2", "--",
                             "--fake-fail-rank=0", "--fake-fail-signal=9"});
  EXPECT_EQ(ran.code, 128 + SIGKILL) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("worker 0 (pid "));
  EXPECT_THAT(ran.output, HasSubstr("SIGKILL"));
}

TEST(Launch, AWorkerThatCannotStartIsTheFailureNotWhatItEnds) {
  const std::string fake = "tests/lab/host/fake_process";
  const std::string worker = testing::TempDir() + "/worker";
  std::ofstream(worker) << "#!/nosuch/shell\n";
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  const Ran ran = RunProcess(
      {"cli/psring", "launch", "--workers=1", "--ps-binary=" + fake,
       "--worker-binary=" + worker, "--server-flag=--fake-hang-rank=0"},
      Now() + absl::Seconds(30));
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("psring launch: cannot start worker 0: " +
                                    worker + ": No such file"));
}

TEST(Launch, StartsAJobThatFailsAgainAsOftenAsItMay) {
  const auto launch = [](const std::string& code) {
    return RunPsring({"launch", "--workers=2", "--max-restarts=2", "--",
                      "--autoresume", "--checkpoint-every", "5",
                      "--fake-fail-rank=1", "--fake-fail-code=" + code});
  };
  const Ran ran = launch("7");
  EXPECT_EQ(ran.code, 7) << ran.output;
  EXPECT_THAT(
      ran.output,
      HasSubstr("failed: exit code 7; starts the job again (restart 1 of 2"));
  EXPECT_THAT(ran.output, HasSubstr("starts the job again (restart 2 of 2"));
  const auto starts = absl::StrSplit(ran.output, "[worker 1] pid ");
  EXPECT_EQ(std::distance(starts.begin(), starts.end()), 1 + 3);
  // A wrong flag stays one.
  const Ran wrong = launch("2");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.output, Not(HasSubstr("starts the job again")));
}

// The folder of the port's file is the launcher's, which alone knows the
// remedy.
TEST(Launch, APortThatCannotBeWrittenHasTheRemedyBelowIt) {
  const std::string worker = testing::TempDir() + "/full_disk";
  std::ofstream(worker) << "#!/bin/sh\n"
                           "echo 'psring worker: --coordinator-port-file: "
                           "cannot write /tmp/port: No space left on device'\n"
                           "exit 1\n";
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  const Ran ran = RunProcess({"cli/psring", "launch", "--mode=ring",
                              "--workers=1", "--worker-binary=" + worker},
                             Now() + absl::Seconds(30));
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output,
              testing::ContainsRegex("  psring worker: .*\nworker 0 failed: .* "
                                     "set TMPDIR to a folder"));
}

// As in the wheel for Python, where the server would otherwise wait for it.
TEST(Launch, WithoutTheTrainerNothingStarts) {
  const Ran ran = RunPsring({"launch", "--worker-binary=/nosuch/worker"});
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("cannot run /nosuch/worker"));
  EXPECT_THAT(ran.output, HasSubstr("the wheel has no built-in trainer"));
  EXPECT_THAT(ran.output, Not(HasSubstr("[ps")));
}

// One wrong flag and what the one line about it must hold.
struct WrongFlag {
  std::vector<std::string> args;
  std::vector<std::string> said;
};

TEST(Launch, AWrongFlagGetsOneLineWithItsValueAndRange) {
  const WrongFlag kWrong[] = {
      {{"--wrokers=2"}, {"--wrokers=2"}},
      {{"--workers=0"}, {"--workers", "0", "1 to 1024"}},
      {{"--servers=-1"}, {"--servers", "-1", "1 to 1024"}},
      {{"--workers=two"}, {"--workers", "two"}},
      {{"--mode=star"}, {"--mode", "star", "{ps,ring}"}},
      {{"--mode=ring", "--servers=1"}, {"--servers", "ring"}},
      {{"--mode=ring", "--server-flag=--shard-threads=2"},
       {"--server-flag", "ring"}},
      {{"--page-token-file=x"}, {"--page-token-file", "give --page"}},
      {{"--max-restarts=1", "--", "--checkpoint-every=5"},
       {"--max-restarts", "--autoresume", "--checkpoint-dir"}},
      {{"--max-restarts=1", "--", "--autoresume"},
       {"--max-restarts", "--checkpoint-every=STEPS"}},
      {{"--max-restarts=1", "--", "--autoresume", "--checkpoint-every=0"},
       {"--max-restarts", "--checkpoint-every=STEPS"}},
      {{"--steps=10"}, {"--steps=10", "the workers' flags go after `--`"}},
      {{"--", "--rank=3"}, {"--rank", "leave it out"}},
      {{"--", "--workers=3"}, {"--workers", "before `--`"}},
  };
  for (const WrongFlag& wrong : kWrong) {
    std::vector<std::string> args = {"launch"};
    args.insert(args.end(), wrong.args.begin(), wrong.args.end());
    const Ran ran = RunPsring(args);
    EXPECT_EQ(ran.code, 2);
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1)
        << ran.output;
    for (const std::string& part : wrong.said) {
      EXPECT_THAT(ran.output, HasSubstr(part));
    }
  }
}

TEST(Launch, HelpHasAnExample) {
  const Ran ran = RunPsring({"launch", "--help"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.output, HasSubstr("Example"));
}

TEST(Psring, AnUnknownSubcommandIsNamed) {
  const Ran ran = RunPsring({"lanch"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.output, HasSubstr("unknown command lanch"));
}

TEST(Psring, ACommandOfTheRepositoryIsSaidToBeThere) {
  const Ran ran = RunPsring({"wheel"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.output, HasSubstr("of the repository has the command wheel"));
}

// A launch whose worker 0 hangs, and that worker's pid.
class HangingLaunch : public testing::Test {
 protected:
  HangingLaunch() : supervisor_(never_, Options()) {
    EXPECT_TRUE(supervisor_
                    .Start({"launch", PsringArgv({"launch", "--workers=1", "--",
                                                  "--fake-hang-rank=0"})})
                    .ok());
    EXPECT_TRUE(
        supervisor_
            .RunUntil([this] { return worker_ > 0; }, Now() + absl::Seconds(30))
            .ok());
  }

  SupervisorOptions Options() {
    SupervisorOptions options;
    options.on_line = [this](const std::string&, absl::string_view line) {
      const std::vector<std::string> words = absl::StrSplit(line, "pid ");
      if (words.size() == 2) (void)absl::SimpleAtoi(words[1], &worker_);
      output_ += std::string(line) + "\n";
    };
    return options;
  }

  bool WorkerIsGone() { return IsGone(worker_); }

  const Cancellation never_;
  Supervisor supervisor_;
  int worker_ = 0;
  std::string output_;
};

TEST_F(HangingLaunch, SigtermEndsEveryProcess) {
  supervisor_.Stop(absl::Seconds(30));
  supervisor_.Wait();
  EXPECT_TRUE(WorkerIsGone());
  EXPECT_EQ(supervisor_.first_failure()->ending.shell_code(), 128 + SIGTERM);
  EXPECT_THAT(output_, HasSubstr("interrupted"));
}

TEST_F(HangingLaunch, KillingTheLauncherLeavesNoOrphan) {
  supervisor_.SignalAll(SIGKILL);
  supervisor_.Wait();
  const Time deadline = Now() + absl::Seconds(30);
  while (!WorkerIsGone() && Now() < deadline) {
  }
  EXPECT_TRUE(WorkerIsGone());
}

// The script hears the first one, and what it has started does not.
TEST(Run, ASecondCtrlCEndsWhatTheScriptHasStartedToo) {
  auto run =
      Process::Start({PsringBinary(), "run", "-n", "1", "--", "/bin/sh", "-c",
                      "trap 'echo heard' INT; (trap '' INT; exec sleep 1000) & "
                      "echo started $! so; while :; do wait; done"});
  ASSERT_TRUE(run.ok()) << run.status();
  const Time deadline = Now() + absl::Seconds(30);
  ASSERT_TRUE(run->WaitForOutput(" so", deadline)) << run->Output();
  int started = 0;
  for (absl::string_view word : absl::StrSplit(run->Output(), ' ')) {
    if (absl::SimpleAtoi(word, &started)) break;
  }
  ASSERT_GT(started, 0) << run->Output();
  run->Signal(SIGINT);
  ASSERT_TRUE(run->WaitForOutput("heard", deadline)) << run->Output();
  run->Signal(SIGINT);
  EXPECT_EQ(run->Wait(deadline), 128 + SIGINT);
  while (!IsGone(started) && Now() < deadline) {
  }
  EXPECT_TRUE(IsGone(started));
}

}  // namespace
}  // namespace psring
