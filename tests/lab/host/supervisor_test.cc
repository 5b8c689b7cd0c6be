#include "lab/host/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/process/open_files.h"

namespace psring {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

Command Shell(const std::string& name, const std::string& script) {
  return {name, {"/bin/sh", "-c", script}};
}

// A supervisor of shell scripts, and what they printed. Its graces are short.
class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    options_.settle = absl::Milliseconds(200);
    options_.terminate_grace = absl::Milliseconds(200);
    options_.interrupt_grace = absl::Milliseconds(200);
    options_.tick = absl::Milliseconds(10);
    options_.on_line = [this](const std::string& name, absl::string_view line) {
      output_[name].emplace_back(line);
      if (on_line_) on_line_();
    };
  }

  // Starts `scripts` as "p0", "p1", ... and waits for all.
  void Run(const std::vector<std::string>& scripts) {
    for (size_t i = 0; i < scripts.size(); ++i) {
      const std::string name = "p" + std::to_string(i);
      ASSERT_TRUE(supervisor().Start(Shell(name, scripts[i])).ok());
    }
    supervisor().Wait();
  }

  Supervisor& supervisor() {
    if (!supervisor_) supervisor_.emplace(cancellation_, options_);
    return *supervisor_;
  }

  SupervisorOptions options_;
  Cancellation cancellation_;
  std::map<std::string, std::vector<std::string>> output_;
  std::function<void()> on_line_;

 private:
  std::optional<Supervisor> supervisor_;
};

constexpr char kForEver[] = " while :; do sleep 0.05; done";

TEST_F(SupervisorTest, HandsOnTheLinesOfBothStreamsUnderTheirName) {
  Run({"echo one; echo two >&2; printf three", "echo other"});
  EXPECT_THAT(output_["p0"], ElementsAre("one", "two", "three"));
  EXPECT_THAT(output_["p1"], ElementsAre("other"));
  EXPECT_FALSE(supervisor().first_failure());
}

// Programs that use select() rely on the limit that their shell gives them.
TEST_F(SupervisorTest, ItsOwnManyFilesAreNotItsProcesses) {
  rlimit files = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  AllowAllFiles();
  Run({"ulimit -n"});
  EXPECT_THAT(output_["p0"], ElementsAre("200"));
  rlimit now = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, files.rlim_max);
}

TEST_F(SupervisorTest, LosesNoLineOfLongOutput) {
  Run({"i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"});
  EXPECT_THAT(output_["p0"], SizeIs(20000));
  EXPECT_EQ(output_["p0"].back(), "line 19999");
}

// A cgroup of 32 MiB, of version 1 or 2; empty: this process may make none.
std::string SmallCgroup() {
  for (const auto& [root, limit] :
       {std::pair("/sys/fs/cgroup/memory/", "/memory.limit_in_bytes"),
        std::pair("/sys/fs/cgroup/", "/memory.max")}) {
    const std::string group =
        root + ("psring-test-" + std::to_string(getpid()));
    if (mkdir(group.c_str(), 0755) != 0) continue;
    if (access((group + limit).c_str(), W_OK) == 0) {
      std::ofstream(group + limit) << (32 << 20);
      return group;
    }
    rmdir(group.c_str());
  }
  return "";
}

TEST_F(SupervisorTest, AProcessThatTheKernelKillsForWantOfMemoryIsToldOf) {
  const std::string group = SmallCgroup();
  if (group.empty()) GTEST_SKIP() << "makes no memory cgroup here";
  // A shell of 100 MB.
  Run({"echo $$ > " + group +
       "/cgroup.procs; x=$(head -c 100000000 /dev/zero | tr '\\0' x); exit 3"});
  // What the shell has started ends after it.
  for (int i = 0; i < 500 && rmdir(group.c_str()) != 0; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  ASSERT_TRUE(supervisor().first_failure());
  EXPECT_THAT(ToString(*supervisor().first_failure()),
              HasSubstr("for want of memory, probably this one: give the job"));
}

TEST_F(SupervisorTest, AProcessThatIsKilledOtherwiseIsNotSaidToLackMemory) {
  Run({"kill -9 $$"});
  ASSERT_TRUE(supervisor().first_failure());
  EXPECT_EQ(ToString(supervisor().first_failure()->ending),
            "killed by SIGKILL (Killed)");
  EXPECT_FALSE(supervisor().first_failure()->memory_was_short);
}

TEST_F(SupervisorTest, TheFirstFailureInTimeIsNamedWithItsLastLines) {
  options_.settle = absl::Seconds(20);
  // p0 fails because p1 has, as a worker does whose peer is gone. A process is
  // gone for others once the supervisor has seen its end.
  const std::string pid = testing::TempDir() + "/pid";
  Run({"until [ -s " + pid + " ]; do sleep 0.01; done; p=$(cat " + pid +
           "); while kill -0 $p; do sleep 0.01; done; exit 1",
       "echo $$ > " + pid + "; echo broken; sleep 0.1; exit 3"});
  ASSERT_TRUE(supervisor().first_failure());
  EXPECT_EQ(supervisor().first_failure()->name, "p1");
  EXPECT_THAT(supervisor().first_failure()->last_lines, ElementsAre("broken"));
}

// As the first to end may be one that was told of another's failure.
TEST_F(SupervisorTest, AFailureIsThatOfTheProcessThatTheFirstOneNames) {
  options_.settle = options_.settle_of_blamed = absl::Seconds(30);
  const std::string folder = testing::TempDir() + "blamed";
  ASSERT_TRUE(supervisor()
                  .Start(Shell("p0", "echo $$ > " + folder +
                                         "; sleep 0.1; echo mine; exit 4"))
                  .ok());
  ASSERT_TRUE(
      supervisor()
          .Start(
              Shell("p1", "while ! [ -s " + folder +
                              " ]; do :; done; echo \"p0 (host a, pid $(cat " +
                              folder + ")) failed\"; exit 3"))
          .ok());
  supervisor().Wait();
  ASSERT_TRUE(supervisor().first_failure().has_value());
  EXPECT_EQ(supervisor().first_failure()->name, "p0");
  EXPECT_EQ(supervisor().first_failure()->ending.exit_code, 4);
  EXPECT_THAT(supervisor().first_failure()->last_lines, ElementsAre("mine"));
}

TEST_F(SupervisorTest, AnIgnoredInterruptIsNotIgnoredByItsProcesses) {
  options_.interrupt_grace = absl::Seconds(30);
  const auto before = signal(SIGINT, SIG_IGN);
  on_line_ = [this] { cancellation_.Cancel(absl::CancelledError("enough")); };
  Run({"trap 'echo interrupted; exit 0' INT; echo ready;" +
       std::string(kForEver)});
  signal(SIGINT, before);
  EXPECT_THAT(output_["p0"], Contains("interrupted"));
}

TEST_F(SupervisorTest, AFailureSaysNameExitCodeAndLastLines) {
  options_.tail_lines = 2;
  Run({"sleep 60", "echo a; echo b; echo c; exit 3"});
  ASSERT_TRUE(supervisor().first_failure());
  const Failure& failure = *supervisor().first_failure();
  EXPECT_EQ(failure.name, "p1");
  EXPECT_EQ(failure.ending.shell_code(), 3);
  EXPECT_THAT(failure.last_lines, ElementsAre("b", "c"));
  EXPECT_THAT(ToString(failure), HasSubstr("p1 (pid "));
  EXPECT_THAT(ToString(failure), HasSubstr("exit code 3"));
  EXPECT_THAT(ToString(failure), HasSubstr("\n  b\n  c"));
}

TEST_F(SupervisorTest, AFailureByASignalNamesTheSignal) {
  Run({"kill -SEGV $$"});
  ASSERT_TRUE(supervisor().first_failure());
  EXPECT_EQ(supervisor().first_failure()->ending.shell_code(), 128 + SIGSEGV);
  EXPECT_THAT(ToString(*supervisor().first_failure()), HasSubstr("SIGSEGV"));
}

TEST_F(SupervisorTest, AfterAFailureTheOthersMayEndByThemselves) {
  options_.settle = absl::Seconds(30);
  Run({"exit 1", "sleep 0.3; echo noticed"});
  EXPECT_THAT(output_["p1"], ElementsAre("noticed"));
  EXPECT_EQ(supervisor().first_failure()->name, "p0");
}

// One that is stopped, say: it does not end by itself.
TEST_F(SupervisorTest, AfterAFailureNobodyWaitsLongForWhoIsToBlame) {
  options_.settle = absl::Seconds(60);
  options_.settle_of_blamed = absl::Milliseconds(100);
  const std::string pid = testing::TempDir() + "/stopped";
  Run({"echo $$ > " + pid + "; kill -STOP $$",
       "until [ -s " + pid +
           " ]; do sleep 0.01; done; echo \"lost p0 (host a, "
           "pid $(cat " +
           pid + "))\"; exit 1"});
  EXPECT_EQ(supervisor().first_failure()->name, "p1");
  ASSERT_THAT(supervisor().killed(), SizeIs(1));
  EXPECT_THAT(supervisor().killed()[0], HasSubstr("p0 (pid "));
}

TEST_F(SupervisorTest, NamesWhoRemainsWhereOthersHaveEnded) {
  ASSERT_TRUE(supervisor().Start(Shell("p0", "sleep 0.1")).ok());
  ASSERT_TRUE(supervisor().Start(Shell("p1", std::string(kForEver))).ok());
  EXPECT_THAT(supervisor().Remaining(), SizeIs(0));
  const auto some_remain = [&] { return !supervisor().Remaining().empty(); };
  EXPECT_TRUE(supervisor().RunUntil(some_remain, Time::InfiniteFuture()).ok());
  EXPECT_THAT(supervisor().Remaining(), ElementsAre(HasSubstr("p1 (pid ")));
  supervisor().Stop();
  supervisor().Wait();
}

// The others have ended well, so none of them can miss it.
TEST_F(SupervisorTest, NobodyWaitsLongForWhoIsStoppedAtTheEnd) {
  options_.settle_of_stopped = absl::Milliseconds(100);
  Run({"kill -STOP $$", "exit 0"});
  ASSERT_TRUE(supervisor().first_failure());
  const std::string text = ToString(*supervisor().first_failure());
  EXPECT_THAT(text, HasSubstr("p0 (pid "));
  EXPECT_THAT(text, HasSubstr("it was stopped (SIGSTOP"));
}

// It is stopped for a moment while another one runs, and one has ended.
TEST_F(SupervisorTest, WhoIsStoppedWhileOthersRunIsTheirs) {
  options_.settle_of_stopped = absl::ZeroDuration();
  const std::string pid = testing::TempDir() + "/stopped_for_a_moment";
  Run({"echo $$ > " + pid + "; kill -STOP $$; echo continues",
       "until [ -s " + pid + " ]; do sleep 0.01; done; p=$(cat " + pid +
           "); until grep -q '^State:.T' /proc/$p/status; do sleep 0.01; "
           "done; sleep 0.3; kill -CONT $p; sleep 0.1",
       "exit 0"});
  EXPECT_FALSE(supervisor().first_failure());
  EXPECT_THAT(output_["p0"], ElementsAre("continues"));
}

TEST_F(SupervisorTest, AfterAFailureTheOthersGetSigtermThenSigkill) {
  options_.terminate_grace = absl::Seconds(2);
  const std::string ready = testing::TempDir() + "/ready";
  Run({"until [ -e " + ready + "1 ] && [ -e " + ready +
           "2 ]; do sleep 0.01; done; exit 1",
       "trap 'echo terminated; exit 0' TERM; touch " + ready + "1;" + kForEver,
       "trap '' TERM; touch " + ready + "2;" + kForEver});
  EXPECT_THAT(output_["p1"], Contains("terminated"));
  EXPECT_EQ(supervisor().first_failure()->name, "p0");
  EXPECT_TRUE(supervisor().AllEnded());
}

TEST_F(SupervisorTest, ACancellationInterruptsThenKills) {
  options_.interrupt_grace = absl::Seconds(2);
  on_line_ = [this] {
    if (output_.size() == 2) cancellation_.Cancel(absl::CancelledError("^C"));
  };
  Run({std::string("trap 'echo interrupted; exit 0' INT; echo ready;") +
           kForEver,
       std::string("trap '' INT; echo ready;") + kForEver});
  EXPECT_THAT(output_["p0"], Contains("interrupted"));
  ASSERT_TRUE(supervisor().first_failure());
  EXPECT_EQ(supervisor().first_failure()->name, "p1");
  EXPECT_EQ(supervisor().first_failure()->ending.signal, SIGKILL);
}

TEST_F(SupervisorTest, WhatAProcessLeavesBehindEndsWithIt) {
  Run({"sleep 600 & echo $!"});
  ASSERT_THAT(output_["p0"], SizeIs(1));
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(output_["p0"][0], &pid));
  const Time deadline = Now() + absl::Seconds(30);
  // Its end is init's to reap; until then it is a zombie.
  std::string state;
  do {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    state.clear();
    std::getline(file, state);
  } while (!state.empty() && !absl::StrContains(state, ") Z") &&
           Now() < deadline);
  EXPECT_TRUE(state.empty() || absl::StrContains(state, ") Z")) << state;
}

TEST_F(SupervisorTest, AProgramThatIsNotThereIsNamed) {
  const absl::Status s = supervisor().Start({"worker 0", {"/no/such/program"}});
  EXPECT_EQ(s.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(s.message()),
              HasSubstr("cannot start worker 0: /no/such/program"));
}

TEST_F(SupervisorTest, RunUntilEndsWhenTheConditionHolds) {
  ASSERT_TRUE(supervisor().Start(Shell("p0", "echo up; sleep 60")).ok());
  EXPECT_TRUE(supervisor()
                  .RunUntil([&] { return !output_["p0"].empty(); },
                            Time::InfiniteFuture())
                  .ok());
}

// What the caller starts next would get no signal any more.
TEST_F(SupervisorTest, ACancellationEndsRunUntilWhereItsConditionHolds) {
  on_line_ = [this] { cancellation_.Cancel(absl::CancelledError("^C")); };
  ASSERT_TRUE(supervisor().Start(Shell("p0", "echo up; sleep 60")).ok());
  const auto is_up = [this] { return !output_["p0"].empty(); };
  EXPECT_EQ(supervisor().RunUntil(is_up, Time::InfiniteFuture()).code(),
            absl::StatusCode::kCancelled);
  supervisor().Wait();
}

TEST_F(SupervisorTest, RunUntilGivesUpAtTheDeadlineAndOnAFailure) {
  const auto never = [] { return false; };
  ASSERT_TRUE(supervisor().Start(Shell("p0", "sleep 60")).ok());
  EXPECT_EQ(supervisor().RunUntil(never, Now()).code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(supervisor().Start(Shell("p1", "exit 4")).ok());
  const absl::Status s = supervisor().RunUntil(never, Time::InfiniteFuture());
  EXPECT_EQ(s.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(s.message()), HasSubstr("p1 failed: exit code 4"));
}

TEST_F(SupervisorTest, RunUntilEndsWhenEverythingHas) {
  ASSERT_TRUE(supervisor().Start(Shell("p0", "exit 0")).ok());
  EXPECT_EQ(supervisor()
                .RunUntil([] { return false; }, Time::InfiniteFuture())
                .code(),
            absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace psring
