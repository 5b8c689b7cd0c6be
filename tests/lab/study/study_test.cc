// A study that is stopped and gone on with, with a stand-in for the processes
// of its jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "tests/testing/process.h"
#include "tests/testing/run_psring.h"

namespace psring {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

class StudyTest : public testing::Test {
 protected:
  StudyTest() {
    std::filesystem::remove_all(out_);
    std::filesystem::remove(log_);
    std::filesystem::remove(hang_on_);
  }

  // 4 ways x 3 seeds.
  std::vector<std::string> Args(const std::string& epochs = "2") const {
    return {"compare",
            "--out=" + out_,
            "--seeds=3",
            "--epochs=" + epochs,
            "--",
            "--fake-log=" + log_,
            "--fake-hang-on=" + hang_on_};
  }

  static std::string Text(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  // A line for each run that was started, such as "ring 1 pid 4711".
  std::vector<std::string> Started() const {
    return absl::StrSplit(Text(log_), '\n', absl::SkipEmpty());
  }

  // Starts a study whose run "ring 1", its eighth, hangs; returns when it does.
  Process StartThatHangs() {
    std::ofstream(hang_on_) << "ring 1\n";
    auto process = Process::Start(PsringArgv(Args()));
    const Time deadline = Now() + absl::Seconds(60);
    while (Started().size() < 8 && Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_EQ(Started().size(), 8u) << process->Output();
    std::filesystem::remove(hang_on_);
    return *std::move(process);
  }

  void ExpectGoesOnWithoutRepeating() {
    const Ran ran = RunPsring(Args());
    ASSERT_EQ(ran.code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("7 of 12 runs are in " + out_));
    EXPECT_THAT(ran.output, HasSubstr("run 8 of 12: ring, 2 workers, seed 1, "
                                      "about"));
    EXPECT_THAT(Started(), SizeIs(13));  // 12 and the one that was stopped
    const json report = json::parse(Text(out_ + "/report.json"));
    EXPECT_THAT(report["runs"], SizeIs(12));
    EXPECT_THAT(report["variants"], SizeIs(4));
    EXPECT_EQ(report["variants"][3]["seeds"], json({"0", "1", "2"}));
    EXPECT_EQ(report["identical_weights"], true);
    EXPECT_THAT(Text(out_ + "/report.html"), HasSubstr("Which way"));
    EXPECT_FALSE(std::filesystem::exists(out_ + "/scratch"));
  }

  const std::string out_ = testing::TempDir() + "study-out";
  const std::string log_ = testing::TempDir() + "study-log";
  const std::string hang_on_ = testing::TempDir() + "study-hang-on";
};

TEST_F(StudyTest, GoesOnAfterKill9AndLeavesNoProcess) {
  Process process = StartThatHangs();
  process.Signal(SIGKILL);
  EXPECT_EQ(process.Wait(Now() + absl::Seconds(30)), 128 + SIGKILL);
  const std::vector<std::string> words = absl::StrSplit(Started().back(), ' ');
  const pid_t worker = std::stoi(words.back());
  const Time deadline = Now() + absl::Seconds(30);
  while (kill(worker, 0) == 0 && Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_NE(kill(worker, 0), 0) << "worker " << worker << " still runs";
  ExpectGoesOnWithoutRepeating();
}

TEST_F(StudyTest, GoesOnAfterAnInterruptThatSaysHow) {
  Process process = StartThatHangs();
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(Now() + absl::Seconds(60)), 128 + SIGINT);
  EXPECT_THAT(process.Output(),
              HasSubstr("7 of 12 runs are kept in " + out_ +
                        ": the same command resumes from there"));
  EXPECT_THAT(process.Output(),
              HasSubstr("CUT SHORT: these figures are of only 7 of 12 runs"));
  const json report = json::parse(Text(out_ + "/report.json"));
  EXPECT_THAT(report["runs"], SizeIs(7));
  EXPECT_EQ(report["cut_short"], "7 of 12 runs");
  EXPECT_THAT(Text(out_ + "/report.html"), HasSubstr("was cut short"));
  ExpectGoesOnWithoutRepeating();
}

TEST_F(StudyTest, AFinishedStudyRunsNothingAndReportsAgain) {
  ASSERT_EQ(RunPsring(Args()).code, 0);
  std::filesystem::remove(out_ + "/report.html");
  const Ran again = RunPsring(Args());
  EXPECT_EQ(again.code, 0) << again.output;
  EXPECT_THAT(Started(), SizeIs(12));
  EXPECT_TRUE(std::filesystem::exists(out_ + "/report.html"));
}

TEST_F(StudyTest, ARunThatFailsAsItTrainsStopsNoOther) {
  auto args = Args();
  args.push_back("--fake-fail-on=async 1");
  const Ran ran = RunPsring(args);
  EXPECT_EQ(ran.code, 9) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("psring compare: ps-async, 2 workers, 1 "
                                    "server, seed 1: worker 0 (pid "));
  EXPECT_THAT(ran.output,
              HasSubstr("* FAILED, and not in the table: ps-async, 2 workers, "
                        "1 server, seed 1: worker 0 (pid "));
  EXPECT_THAT(Started(), SizeIs(12));
  const json report = json::parse(Text(out_ + "/report.json"));
  EXPECT_THAT(report["runs"], SizeIs(11));
  EXPECT_EQ(report["variants"][2]["seeds"], json({"0", "2"}));
  ASSERT_THAT(report["failed_runs"], SizeIs(1));
  EXPECT_THAT(std::string(report["failed_runs"][0]),
              HasSubstr("training has diverged"));
  EXPECT_THAT(Text(out_ + "/report.html"), HasSubstr("These runs failed"));
  // The same command tries again what failed, and only that.
  EXPECT_EQ(RunPsring(args).code, 9);
  EXPECT_THAT(Started(), SizeIs(13));
}

TEST_F(StudyTest, ARunWhoseResultsTheDiskHasNoRoomForStopsNoOther) {
  auto args = Args();
  args.push_back("--fake-full-on=async 1");
  const Ran ran = RunPsring(args);
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(Started(), SizeIs(12));
  const json report = json::parse(Text(out_ + "/report.json"), nullptr, false);
  ASSERT_TRUE(report.is_object()) << ran.output;
  EXPECT_THAT(report["runs"], SizeIs(11));
  ASSERT_THAT(report["failed_runs"], SizeIs(1));
  EXPECT_THAT(
      std::string(report["failed_runs"][0]),
      AllOf(HasSubstr("lack worker 0's end"),
            HasSubstr("worker 0 says: --metrics-dir: cannot write " + out_ +
                      "/scratch/metrics/worker-0.jsonl (No "
                      "space left on device)"),
            HasSubstr("Free space there, or choose another")));
  // The same command tries again what failed, and only that.
  EXPECT_EQ(RunPsring(args).code, 1);
  EXPECT_THAT(Started(), SizeIs(13));
}

TEST_F(StudyTest, WhereEveryRunFailsThereIsNoReport) {
  const Ran ran = RunPsring({"compare", "--out=" + out_, "--modes=ring", "--",
                             "--fake-fail-on=ring 0"});
  EXPECT_EQ(ran.code, 9) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("every run has failed"));
  EXPECT_FALSE(std::filesystem::exists(out_ + "/report.html"));
}

TEST_F(StudyTest, OtherFlagsOnTheSameFolderAreRefused) {
  ASSERT_EQ(RunPsring(Args()).code, 0);
  const Ran other = RunPsring(Args("5"));
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.output, AllOf(HasSubstr("--epochs was 2 and is 5"),
                                  HasSubstr("choose another folder")));
  EXPECT_EQ(std::count(other.output.begin(), other.output.end(), '\n'), 1);
  EXPECT_THAT(Started(), SizeIs(12));
}

TEST_F(StudyTest, AnArgumentWithASpaceMakesAnotherStudyThanTwoArguments) {
  std::vector<std::string> args = {"compare", "--out=" + out_, "--modes=ring",
                                   "--epochs=1", "--"};
  args.push_back("--fake-log=" + log_ + " x");
  ASSERT_EQ(RunPsring(args).code, 0);
  std::filesystem::remove(log_ + " x");
  args.back() = "--fake-log=" + log_;
  args.push_back("x");
  const Ran other = RunPsring(args);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.output, HasSubstr("holds another study: -- was '"));
}

TEST_F(StudyTest, AnAxisReachesTheWorkersOnlyWhereItIsUsed) {
  const Ran ran =
      RunPsring({"compare", "--out=" + out_, "--modes=ring", "--epochs=1",
                 "--workers=1,2", "--slow=none", "--slow=worker:0:x3"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  const json report = json::parse(Text(out_ + "/report.json"));
  ASSERT_THAT(report["variants"], SizeIs(4));
  EXPECT_EQ(report["variants"][3]["label"], "2 workers, slow=worker:0:x3");
  EXPECT_EQ(report["faults"], json({"--slow=worker:0:x3"}));
}

}  // namespace
}  // namespace psring
