// `psring bench` with real processes. Nothing here looks at how long anything
// takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/testing/process.h"

namespace psring {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class BenchTest : public testing::Test {
 protected:
  BenchTest() { std::filesystem::remove_all(out_); }

  Ran Bench(std::vector<std::string> args) {
    args.insert(args.begin(), {PsringBinary(), "bench", "--out=" + out_});
    return RunProcess(args, Now() + absl::Minutes(4));
  }

  json Report() {
    std::ifstream file(out_ + "/bench.json");
    return json::parse(file, nullptr, false);
  }

  static void ExpectMeasured(const json& point) {
    EXPECT_GT(point["limit_s"], 0);
    ASSERT_EQ(point["measurements"].size(), 1u);
    const json& ours = point["measurements"][0];
    EXPECT_EQ(ours["contender"], "psring");
    EXPECT_EQ(ours["verified"], true);
    EXPECT_GE(ours["iterations"], 20);
    EXPECT_EQ(ours["iterations"], ours["seconds"].size());
    EXPECT_GT(ours["median_s"], 0);
    EXPECT_GE(ours["p99_s"], ours["median_s"]);
    EXPECT_GT(ours["times_limit"], 0);
    EXPECT_GT(ours["cpu_s"], 0);
  }

  const std::string out_ = testing::TempDir() + "bench";
};

TEST_F(BenchTest, MeasuresAllReduceAndPushPull) {
  const Ran ran = Bench({"allreduce", "pushpull", "--sizes=1KB,100KB",
                         "--ranks=2", "--iterations=20", "--peers=none"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("allreduce psring"));
  EXPECT_THAT(ran.output, HasSubstr("pushpull psring"));
  EXPECT_THAT(ran.output, HasSubstr("report: " + out_ + "/bench.html"));
  const json report = Report();
  ASSERT_EQ(report["points"].size(), 4u);
  for (const json& point : report["points"]) ExpectMeasured(point);
  EXPECT_EQ(report["points"][1]["size_bytes"], 100000);
  EXPECT_EQ(report["points"][2]["operation"], "pushpull");
  EXPECT_EQ(report["flags"]["ranks"], "2");
  EXPECT_GT(report["machine"]["cores"], 0);
  EXPECT_TRUE(report["peers"].empty());
  EXPECT_TRUE(std::filesystem::exists(out_ + "/bench.html"));
}

TEST_F(BenchTest, MeasuresMomentumOnSeveralServers) {
  const Ran ran = Bench({"pushpull", "--sizes=300KB", "--ranks=3",
                         "--servers=2", "--optimizer=momentum", "--rounds=1"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  const json point = Report()["points"][0];
  ExpectMeasured(point);
  // Half of the parameters and their momentum at the least.
  EXPECT_GE(point["measurements"][0]["server_peak_bytes"], 300'000);
}

TEST_F(BenchTest, LeavesBuffersInTheCaches) {
  const Ran ran = Bench({"allreduce", "pushpull", "--sizes=1KB", "--ranks=3",
                         "--hot", "--peers=none", "--rounds=1"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("stayed in the caches"));
  const json report = Report();
  EXPECT_EQ(report["hot"], true);
  for (const json& point : report["points"]) ExpectMeasured(point);
}

// A tree of ps-lite is needed to measure it: PSRING_TEST_PS_LITE names one.
TEST_F(BenchTest, MeasuresPsLite) {
  const char* tree = std::getenv("PSRING_TEST_PS_LITE");
  if (tree == nullptr) GTEST_SKIP() << "PSRING_TEST_PS_LITE names no ps-lite";
  const Ran ran =
      Bench({"pushpull", "--sizes=1KB,9MB", "--ranks=3", "--servers=2",
             "--rounds=1", absl::StrCat("--ps-lite=", tree)});
  ASSERT_EQ(ran.code, 0) << ran.output;
  for (const json& point : Report()["points"]) {
    ASSERT_EQ(point["measurements"].size(), 2u);
    EXPECT_EQ(point["measurements"][1]["contender"], "ps-lite");
    EXPECT_GT(point["measurements"][1]["server_peak_bytes"], 0);
  }
}

TEST_F(BenchTest, SaysHowToGetPsLite) {
  const Ran ran = Bench({"pushpull", "--sizes=1KB", "--peers=ps-lite"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("ps-lite is missing: --ps-lite=DIR"));
}

// An Open MPI that is found, and fails.
TEST_F(BenchTest, APeerThatFailsIsLeftOutUnlessItIsNamed) {
  const std::string programs = testing::TempDir() + "programs";
  std::filesystem::create_directories(programs);
  std::ofstream(programs + "/mpicxx") << "#!/bin/sh\n";
  std::ofstream(programs + "/mpirun")
      << "#!/bin/sh\n[ \"$1\" = --version ] && echo Open MPI 1 && exit\n"
         "echo no slots; exit 3\n";
  for (const char* name : {"/mpicxx", "/mpirun"}) {
    std::filesystem::permissions(programs + name,
                                 std::filesystem::perms::owner_all);
  }
  const auto bench = [&](const std::string& peers) {
    return RunProcess(
        {PsringBinary(), "bench", "--out=" + out_, "allreduce",
         "--sizes=1KB,2KB", "--ranks=2", "--iterations=20", peers},
        Now() + absl::Minutes(4),
        ProcessOptions{
            .cwd = "",
            // No compiler: no other peer can be made.
            .env = {{"PATH", programs}, {"PSRING_PEERS", programs}}});
  };
  const Ran ran = bench("--peers=auto");
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("openmpi failed, and is left out from "
                                    "there on: allreduce of 1 KB"));
  const json report = Report();
  EXPECT_EQ(report["points"].size(), 2u);
  EXPECT_THAT(std::string(report["peers"][0]["failure"]),
              HasSubstr("no slots"));
  const Ran named = bench("--peers=openmpi");
  EXPECT_EQ(named.code, 1) << named.output;
  EXPECT_THAT(named.output, HasSubstr("no slots"));
}

TEST_F(BenchTest, MeasuresLinks) {
  const Ran ran = Bench({"links", "--ranks=2"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  const json report = Report();
  ASSERT_EQ(report["links"].size(), 2u);
  EXPECT_GT(report["links"][0]["median_bits_per_s"], 0);
  EXPECT_GE(report["links"][0]["seconds"].size(), 20u);
}

TEST_F(BenchTest, MeasuresLinksInAFewSecondsHoweverManyIterations) {
  const Ran ran = Bench({"links", "--ranks=2", "--iterations=3000"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  const json report = Report();
  ASSERT_EQ(report["links"].size(), 2u);
  EXPECT_EQ(report["links"][0]["seconds"].size(), 200u);
}

TEST_F(BenchTest, AFailedRankNamesItselfAndTheSize) {
  const Ran ran = Bench(
      {"allreduce", "--sizes=1KB", "--peers=none", "--rank-binary=/bin/false"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("allreduce of 1 KB on 2 ranks"));
  EXPECT_THAT(ran.output, HasSubstr("worker 0 (pid "));
  EXPECT_FALSE(std::filesystem::exists(out_ + "/bench.html"));
}

TEST_F(BenchTest, AnInterruptLeavesAReportOfWhatWasMeasured) {
  auto bench =
      Process::Start({PsringBinary(), "bench", "--out=" + out_, "allreduce",
                      "--sizes=1KB,256MB", "--iterations=200", "--peers=none"},
                     ProcessOptions{});
  ASSERT_TRUE(bench.ok()) << bench.status();
  ASSERT_TRUE(bench->WaitForOutput("1 KB: psring", Now() + absl::Minutes(1)))
      << bench->Output();
  kill(bench->pid(), SIGINT);
  EXPECT_EQ(bench->Wait(Now() + absl::Minutes(1)), 128 + SIGINT);
  EXPECT_THAT(bench->Output(), HasSubstr("Cut short"));
  const json report = Report();
  ASSERT_EQ(report["points"].size(), 1u);
  ExpectMeasured(report["points"][0]);
  EXPECT_NE(report["cut_short"], "");
}

TEST_F(BenchTest, WithoutItsProgramsNothingStarts) {
  const Ran ran = Bench({"links", "--rank-binary=/nosuch/rank"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("cannot run /nosuch/rank"));
  EXPECT_THAT(ran.output, HasSubstr("the wheel has no built-in trainer"));
}

TEST_F(BenchTest, TrainsEveryModelInEveryWayAndPrecision) {
  const Ran ran = Bench({"train", "--models=mlp:784-128-10,mlp:784-64-10",
                         "--modes=ps-bsp,ring", "--precision=fp32,bf16",
                         "--workers=1", "--steps=3000", "--repetitions=1",
                         "--batch-size=32", "--device=cpu"});
  ASSERT_EQ(ran.code, 0) << ran.output;
  std::vector<std::string> trained;
  const json report = Report();
  for (const json& training : report["trainings"]) {
    trained.push_back(absl::StrCat(training["model"].get<std::string>(), " ",
                                   training["precision"].get<std::string>(),
                                   " ",
                                   training["contender"].get<std::string>()));
    EXPECT_GT(training["median_images_per_s"], 0);
    EXPECT_GT(training["peak_memory_bytes"], 1 << 20);
    EXPECT_GT(training["accuracy"], 0);
  }
  EXPECT_THAT(trained,
              testing::ElementsAre(
                  "mlp:784-128-10 fp32 ps-bsp", "mlp:784-128-10 fp32 ring",
                  "mlp:784-128-10 bf16 ps-bsp", "mlp:784-128-10 bf16 ring",
                  "mlp:784-64-10 fp32 ps-bsp", "mlp:784-64-10 fp32 ring",
                  "mlp:784-64-10 bf16 ps-bsp", "mlp:784-64-10 bf16 ring"));
}

TEST_F(BenchTest, GivesATrainingAsManyStepsAsARateNeeds) {
  const Ran ran =
      Bench({"train", "--models=mlp:784-10", "--modes=ring,ps-bsp",
             "--workers=1", "--steps=1", "--repetitions=1", "--device=cpu"});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output,
              testing::ContainsRegex("ring: the training was too short for a "
                                     "rate: give it more --steps, such as "
                                     "[0-9]+. All trainings of this model"));
  EXPECT_THAT(ran.output, testing::ContainsRegex("ps-bsp[^\\n]*images/s"));
}

TEST_F(BenchTest, AWrongFlagGetsOneLineWithItsValue) {
  const std::pair<std::vector<std::string>, std::vector<std::string>> kWrong[] =
      {
          {{}, {"operation"}},
          {{"broadcast"}, {"broadcast"}},
          {{"allreduce", "--sizes=1XB"}, {"--sizes", "\"1XB\"", "KB"}},
          {{"links", "--ranks=1"}, {"--ranks", "\"1\"", "from 2"}},
          {{"allreduce", "--sizes=1KB,900GB"},
           {"--sizes", "2 ranks with 900 GB each need", "are free"}},
          {{"links", "--iterations=19"}, {"--iterations", "19", "20 to"}},
          {{"allreduce", "--peers=nccl"}, {"--peers", "\"nccl\"", "gloo"}},
          {{"allreduce", "--peers=gloo,gloo"}, {"--peers", "gloo comes twice"}},
          {{"pushpull", "--peers=gloo"}, {"--peers", "gloo is for allreduce"}},
          {{"allreduce", "--peers=openmpi,ps-lite"},
           {"--peers", "ps-lite is for pushpull"}},
          {{"links", "--hosts=2", "--link=fast"}, {"--link", "\"fast\""}},
          {{"links", "--link=1gbit"}, {"--link", "--hosts"}},
          {{"pushpull", "--ps-lite=/nosuch"}, {"--ps-lite", "/nosuch", "make"}},
          {{"allreduce", "--ranks=13", "--hot"}, {"--hot", "13", "16"}},
          {{"train", "--hosts=2"}, {"train", "--hosts"}},
          {{"train", "--device=gpu"}, {"--device", "gpu", "cuda"}},
          {{"train", "--modes=ring,gloo"}, {"--modes", "\"gloo\"", "ddp"}},
          {{"train", "--precision=fp8"}, {"--precision", "\"fp8\"", "bf16"}},
          {{"train", "--device=cpu", "--precision=fp32,tf32"},
           {"--precision=tf32", "GPUs"}},
          {{"links", "--hosts=2", "--ranks=4"}, {"--ranks", "4"}},
          {{"pushpull", "--hosts=2", "--servers=1"}, {"--servers", "separate"}},
          {{"links", "--hosts=2", "--placement=x"}, {"--placement", "x"}},
          {{"links", "--sizes=1KB"}, {"--sizes", "allreduce, pushpull"}},
          {{"train", "--ranks=2"}, {"--ranks", "measures train"}},
          {{"allreduce", "pushpull", "--batch-size=8"}, {"--batch-size"}},
      };
  for (const auto& [flags, said] : kWrong) {
    const Ran ran = Bench(flags);
    EXPECT_EQ(ran.code, 2) << ran.output;
    EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1)
        << ran.output;
    for (const std::string& part : said) {
      EXPECT_THAT(ran.output, HasSubstr(part));
    }
  }
}

TEST_F(BenchTest, HelpHasAnExample) {
  const Ran ran = Bench({"--help"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.output, HasSubstr("--hosts=4 --link=1gbit"));
}

}  // namespace
}  // namespace psring
