// `psring compare` with a stand-in for the processes of its jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/testing/run_psring.h"

namespace psring {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The compare with its report in a fresh folder.
class CompareTest : public testing::Test {
 protected:
  CompareTest() { std::filesystem::remove_all(out_); }

  Ran Compare(std::vector<std::string> args) {
    args.insert(args.begin(), {"compare", "--out=" + out_});
    return RunPsring(args);
  }

  std::string Report(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(out_ + "/" + name).rdbuf();
    return text.str();
  }

  const std::string out_ = testing::TempDir() + "out";
};

TEST_F(CompareTest, TrainsInFourWaysAndReports) {
  const Ran ran = Compare({"--epochs=3"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("ps-bsp     epoch 3/3: train loss"));
  EXPECT_THAT(ran.output, HasSubstr("ps-bsp  ps-ssp:3  ps-async      ring"));
  EXPECT_THAT(ran.output, HasSubstr("time to 94.80% accuracy"));
  EXPECT_THAT(ran.output,
              HasSubstr("ps-bsp and ring ended with identical weights"));
  EXPECT_THAT(ran.output,
              HasSubstr("94.80% accuracy is reached first by ring"));
  EXPECT_THAT(ran.output, HasSubstr("report: " + out_ + "/report.html"));
  const json report = json::parse(Report("report.json"));
  ASSERT_EQ(report["runs"].size(), 4u);
  EXPECT_EQ(report["runs"][1]["staleness_max"], 2);
  EXPECT_EQ(report["identical_weights"], true);
  EXPECT_LT(report["variants"][0]["prediction"]["error"], 0);
  EXPECT_TRUE(report["variants"][2]["prediction"].is_null());
  EXPECT_EQ(report["setup"]["libtorch"], "9.8.7");
  EXPECT_THAT(Report("report.html"), HasSubstr("ps-async"));
  EXPECT_THAT(Report("report.html"), HasSubstr("Predicted and measured"));
  EXPECT_THAT(ran.output, HasSubstr("psring predict, told how long"));
}

TEST_F(CompareTest, TrainsOnlyInTheWaysAskedFor) {
  const Ran ran = Compare({"--modes=ring", "--epochs=1"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, Not(HasSubstr("ps-bsp")));
  const json report = json::parse(Report("report.json"));
  EXPECT_EQ(report["variants"].size(), 1u);
  EXPECT_TRUE(report["identical_weights"].is_null());
}

TEST_F(CompareTest, ATargetMayBeAsSmallAsNumbersAre) {
  const Ran ran =
      Compare({"--modes=ring", "--epochs=1", "--target-accuracy=1e-310"});
  EXPECT_EQ(ran.code, 0) << ran.output;
}

TEST_F(CompareTest, AFailureNamesWayAndProcessAndGivesItsCode) {
  const Ran ran = Compare({"--", "--fake-fail-rank=0", "--fake-fail-code=9"});
  EXPECT_EQ(ran.code, 9);
  EXPECT_THAT(ran.output,
              HasSubstr("psring compare: ps-bsp, 2 workers, 1 server, "
                        "seed 0: worker 0 (pid "));
  EXPECT_THAT(ran.output, HasSubstr("exit code 9; its last lines:"));
  EXPECT_THAT(ran.output, HasSubstr("  something broke"));
  EXPECT_FALSE(std::filesystem::exists(out_ + "/report.html"));
}

TEST_F(CompareTest, WithoutTheTrainerNothingStarts) {
  const Ran ran = Compare({"--worker-binary=/nosuch/worker"});
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("cannot run /nosuch/worker"));
  EXPECT_THAT(ran.output, HasSubstr("train a script given after --"));
  EXPECT_THAT(ran.output, Not(HasSubstr("run 1 of")));
}

TEST_F(CompareTest, AnUnwritableReportPathIsFoundBeforeTraining) {
  const Ran ran = RunPsring({"compare", "--out=/dev/null/reports"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("cannot write /dev/null/reports"));
  EXPECT_THAT(ran.output, Not(HasSubstr("epoch")));
}

TEST_F(CompareTest, AWrongFlagGetsOneLineWithItsValueAndRange) {
  const std::pair<std::string, std::vector<std::string>> kWrong[] = {
      {"--epocs=3", {"--epocs=3"}},
      {"--epochs=0", {"--epochs", "0", "1 to 1000000"}},
      {"--workers=0", {"--workers", "0", "1 to 1024"}},
      {"--seeds=1,1", {"--seeds", "\"1\" comes twice"}},
      {"--target-accuracy=2", {"--target-accuracy", "2", "at most 1"}},
      {"--modes=ps-bsp+rank=1", {"--rank", "leave it out"}},
      {"--modes=ps-bsp+mode=ring", {"--mode ", "--modes"}},
      {"--modes=ps-bsp+checkpoint-dir=x", {"--checkpoint-dir", "leave it out"}},
      {"--page-token-file=x", {"--page-token-file", "give --page"}},
      {"train.py", {"train.py", "your program and its arguments go after"}},
      {"--modes=ps-bsp+slow=x", {"--slow", "before `--`"}},
      {"--workers=none", {"--workers", "none"}},
      {"--servers=none", {"--servers", "none"}},
      {"--compress=none,fp17", {"--compress", "fp17"}},
      {"--modes=ps-bsp+sync=async", {"--sync", "--modes"}},
      {"--modes=ring+lr=1+lr=2", {"--lr", "twice"}},
      {"--slow=worker:0:3", {"--slow", "worker:0:3", "xFACTOR"}},
      {"--slow=worker:2:x3", {"--slow=worker:2:x3", "no worker 2"}},
      {"--batch-size=-1", {"--batch-size", "-1", "1 to"}},
      {"--momentum=2", {"--momentum", "2", "0 to 1"}},
      {"--lr=fast", {"--lr", "fast"}},
      {"--seed=x", {"--seed", "x"}},
      {"--modes=ps", {"--modes", "\"ps\"", "ps-async"}},
  };
  for (const auto& [flag, said] : kWrong) {
    const Ran ran = Compare({flag});
    EXPECT_EQ(ran.code, 2) << flag;
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1)
        << ran.output;
    for (const std::string& part : said) {
      EXPECT_THAT(ran.output, HasSubstr(part));
    }
  }
}

TEST_F(CompareTest, AFlagWithoutEffectIsRefused) {
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--modes=ring", "--servers=2"},
        {"--seeds=1,2", "--seed=7"}}) {
    const Ran ran = Compare(flags);
    EXPECT_EQ(ran.code, 2) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(flags[1].substr(0, 6)));
  }
}

TEST_F(CompareTest, AFlagOfTheStudyIsRefusedBehindTheDashesAndSaysWhere) {
  const Ran ran = Compare({"--modes=ring", "--", "--data=mnist:/x"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.output,
              HasSubstr("--data is a flag of the study: give it before `--`"));
  EXPECT_EQ(Compare({"--epochs=2", "--steps=3"}).code, 2);
}

TEST_F(CompareTest, AWaysFlagTakesThePlaceOfTheStudys) {
  // The stand-in takes no --steps: it trains for the 3 epochs that it knows.
  const Ran ran =
      Compare({"--modes=ring,ring+epochs=2,ring+steps=9", "--epochs=4"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  const json report = json::parse(Report("report.json"));
  EXPECT_EQ(report["runs"][0]["num_steps"], 80);
  EXPECT_EQ(report["runs"][1]["num_steps"], 40);
  EXPECT_EQ(report["runs"][2]["num_steps"], 60);
}

TEST_F(CompareTest, StepsTakeThePlaceOfEpochs) {
  ASSERT_EQ(Compare({"--modes=ring", "--steps=200"}).code, 0);
  EXPECT_THAT(Report("report.html"), HasSubstr(" for 200 steps, "));
}

TEST_F(CompareTest, TheReportsCommandCanBePasted) {
  ASSERT_EQ(Compare({"--modes=ring", "--data=it's (one)"}).code, 0);
  const std::string command =
      json::parse(Report("report.json"))["setup"]["command"];
  EXPECT_THAT(command, HasSubstr(" --modes=ring '--data=it'\\''s (one)'"));
}

TEST_F(CompareTest, HelpHasAnExample) {
  const Ran ran = Compare({"--help"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.output, HasSubstr("Example"));
}

// A user's program as every worker, here a shell script that tells of itself
// what psring's Python package would.
class CompareScriptTest : public CompareTest {
 protected:
  static constexpr char kScript[] = R"sh(
f=$PSRING_METRICS_DIR/worker-$PSRING_RANK.jsonl
echo '{"event":"start","role":"worker","rank":'$PSRING_RANK',"host":"h","pid":1,"time":0}' > $f
echo '{"event":"model","num_parameters":10,"global_batch":2}' >> $f
case "$PSRING_MODE-$PSRING_SYNC-$PSRING_COMPRESS" in
  ring--none) accuracy=0.9 ;; ps-bsp-none) accuracy=0.9 ;;
  ps-ssp:2-none) accuracy=0.8 ;; ddp--none) accuracy=0.85 ;;
  *) echo "unexpected $PSRING_MODE $PSRING_SYNC"; exit 3 ;;
esac
[ "$1" != losses ] || echo '{"event":"epoch","epoch":1,"step":20,"seconds":2.5,"train_loss":null,"test_loss":3.1,"test_accuracy":null,"images_per_second":null}' >> $f
[ "$1" = quiet ] || [ "$1" = losses ] || echo '{"event":"epoch","epoch":1,"step":20,"seconds":2.5,"train_loss":null,"test_loss":0.5,"test_accuracy":'$accuracy',"images_per_second":null}' >> $f
[ "$1-$PSRING_MODE" != diverges-ps ] || echo '{"event":"epoch","epoch":2,"step":20,"seconds":2.6,"train_loss":null,"test_loss":null,"not_finite":["test_loss"],"test_accuracy":null,"images_per_second":null}' >> $f
echo "seed $PSRING_SEED: accuracy $accuracy perplexity 25.5"
echo '{"event":"end","step":20,"seconds":2.5,"bytes_sent":100,"bytes_received":100,"peak_memory_bytes":1000,"weights_crc32":'$((PSRING_SEED + 7))'}' >> $f
)sh";

  CompareScriptTest() { std::ofstream(script_) << kScript; }

  // While the run of this seed trains, the disk becomes full for the file of
  // the study that has this name.
  void FillDiskFor(const std::string& name, int seed) {
    std::ofstream(script_, std::ios::app)
        << "[ $PSRING_RANK-$PSRING_SEED != 0-" << seed
        << " ] || ln -s /dev/full " << out_ << "/" << name << ".$PPID.tmp\n";
  }

  const std::string script_ = testing::TempDir() + "train.sh";
};

TEST_F(CompareScriptTest, ComparesTheWaysOnAUsersProgram) {
  const Ran ran = Compare({"--modes=ring,ps-bsp,ps-ssp:2,ddp", "--seeds=2",
                           "--", "/bin/sh", script_, "--epochs=1"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output,
              HasSubstr("ps-bsp and ring ended with identical weights"));
  const json report = json::parse(Report("report.json"));
  ASSERT_EQ(report["runs"].size(), 8u);
  for (const json& run : report["runs"]) {
    EXPECT_EQ(run["num_parameters"], 10);
    EXPECT_EQ(run["num_steps"], 20);
  }
  EXPECT_EQ(report["runs"][0]["test_accuracy"], 0.9);
  EXPECT_THAT(Report("report.html"), HasSubstr("torch.distributed"));
}

TEST_F(CompareScriptTest, AWayThatDivergesHasFailedAndTheOthersGoOn) {
  const Ran ran =
      Compare({"--modes=ps-bsp,ring", "--", "/bin/sh", script_, "diverges"});
  EXPECT_NE(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("training has diverged"));
  const json report = json::parse(Report("report.json"));
  ASSERT_EQ(report["runs"].size(), 1u);
  EXPECT_EQ(report["runs"][0]["point"]["mode"], "ring");
  EXPECT_EQ(report["failed_runs"].size(), 1u);
}

TEST_F(CompareScriptTest, FindsTheMeasureInWhatIsPrinted) {
  const Ran ran = Compare({"--modes=ring,ddp", "--metric=accuracy ([0-9.]+)",
                           "--", "/bin/sh", script_, "quiet"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  const json report = json::parse(Report("report.json"));
  EXPECT_EQ(report["runs"][0]["test_accuracy"], 0.9);
  EXPECT_EQ(report["runs"][1]["test_accuracy"], 0.85);
}

// It is in the report, and the same command makes it again.
TEST_F(CompareScriptTest, ARunThatCannotBeKeptStopsNoOther) {
  FillDiskFor("runs/run-001.json", 1);
  const std::vector<std::string> args = {"--modes=ring", "--seeds=3", "--",
                                         "/bin/sh", script_};
  const Ran ran = Compare(args);
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("run 3 of 3"));
  const json report = json::parse(Report("report.json"), nullptr, false);
  ASSERT_TRUE(report.is_object()) << ran.output;
  EXPECT_EQ(report["runs"].size(), 3u);
  EXPECT_EQ(report["failed_runs"].size(), 0u);
  EXPECT_THAT(ran.output,
              AllOf(HasSubstr("seed 1 is not kept: cannot write " + out_ +
                              "/runs/run-001.json: "),
                    HasSubstr("No space left on device. Free space there"),
                    HasSubstr("The same command runs it again")));
  EXPECT_THAT(Compare(args).output, HasSubstr("2 of 3 runs are in"));
}

TEST_F(CompareScriptTest, JudgesByTheLossOfAScriptThatHasNoAccuracy) {
  const Ran logged =
      Compare({"--modes=ring,ps-bsp,ddp", "--", "/bin/sh", script_, "losses"});
  ASSERT_EQ(logged.code, 0) << logged.output;
  EXPECT_THAT(logged.output, HasSubstr("time to a test loss of 3.1"));
  EXPECT_EQ(json::parse(Report("report.json"))["target_loss"], 3.1);
  EXPECT_THAT(Report("report.html"), HasSubstr("That loss, 3.1, is what all"));
  std::filesystem::remove_all(out_);
  const Ran printed =
      Compare({"--modes=ring,ddp", "--metric-loss=perplexity ([0-9.]+)",
               "--target-loss=30", "--", "/bin/sh", script_, "quiet"});
  ASSERT_EQ(printed.code, 0) << printed.output;
  EXPECT_EQ(json::parse(Report("report.json"))["target_loss"], 30);
  EXPECT_THAT(Report("report.html"), HasSubstr("That loss, 30, was given"));
}

TEST_F(CompareScriptTest, AReportThatCannotBeWrittenLeavesTheRuns) {
  FillDiskFor("report.html", 0);
  const std::vector<std::string> args = {"--modes=ring", "--", "/bin/sh",
                                         script_};
  const Ran ran = Compare(args);
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("cannot write " + out_ + "/report.html: "));
  EXPECT_THAT(ran.output,
              HasSubstr("No space left on device. Free space there, or choose "
                        "another folder with --out; the runs are kept in " +
                        out_ + ": the same command reports on them"));
  EXPECT_THAT(ran.output, HasSubstr("90.00%"));
  EXPECT_EQ(Compare(args).code, 0);
  EXPECT_TRUE(std::filesystem::exists(out_ + "/report.html"));
}

// A script that has been changed would mix two trainings in one study.
TEST_F(CompareScriptTest, AStudyResumesOnlyWithTheSameScript) {
  const std::string log = testing::TempDir() + "log";  // that it writes
  std::filesystem::remove(log);
  const std::vector<std::string> args = {"--modes=ring", "--", "/bin/sh",
                                         script_, log};
  ASSERT_EQ(Compare(args).code, 0);
  std::vector<std::string> target = args;
  target.insert(target.begin(), "--target-accuracy=0.5");
  std::ofstream(log) << "a line";
  EXPECT_EQ(Compare(target).code, 0);
  std::ofstream(script_, std::ios::app) << "# more\n";
  const Ran other = Compare(args);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.output, HasSubstr("the file " + script_ + " was "));
}

TEST_F(CompareScriptTest, NamesWhatDoesNotBelongToAScript) {
  const std::vector<std::string> tail = {"--", "/bin/sh", script_};
  const auto with = [&](std::vector<std::string> args) {
    args.insert(args.end(), tail.begin(), tail.end());
    return Compare(args);
  };
  EXPECT_THAT(with({"--model=lenet"}).output,
              HasSubstr("--model is for the built-in trainer"));
  EXPECT_THAT(with({"--metric=("}).output, HasSubstr("no regular expression"));
  EXPECT_THAT(with({"--modes=ps-bsp+backup-workers=1"}).output,
              HasSubstr("a script has no flags"));
  EXPECT_THAT(Compare({"--modes=ddp"}).output,
              HasSubstr("ddp is for a script"));
  EXPECT_THAT(Compare({"--metric=x"}).output, HasSubstr("is for a script"));
  const Ran silent =
      Compare({"--modes=ring", "--", "/bin/sh", script_, "quiet"});
  EXPECT_NE(silent.code, 0);
  EXPECT_THAT(silent.output, HasSubstr("psring.log(accuracy=...)"));
}

}  // namespace
}  // namespace psring
