#include "lab/bench/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lab/bench/bench_cells.h"
#include "lab/bench/bench_html.h"
#include "lab/bench/bench_json.h"

namespace psring {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

BenchResults Sample() {
  BenchResults results;
  results.command = "psring bench </script>";
  results.flags = {{"sizes", "100MB"}};
  results.copy_kind = "AVX2";
  results.peers = {{"openmpi", true, "4.1"}, {"gloo", false, "no python3"}};
  results.points = {
      {.operation = "allreduce",
       .ranks = 4,
       .size_bytes = 100'000'000,
       .link_load = 1.5,
       .limit_seconds = 0.01,
       .copy_seconds = {0.01},
       .measurements = {{"psring", {0.02, 0.03, 0.02}, 0.6, 195000000},
                        {"openmpi", {0.04, 0.05, 0.04}, 1.2, 0}}}};
  results.trainings = {{"lenet", "ring", 1, {100, 300, 200}},
                       {"lenet", "ring", 2, {300}, "fp32", 150'000'000, 0.9612},
                       {"lenet", "ddp", 2, {150}}};
  return results;
}

TEST(BenchResults, HaveBandwidthsAndRatios) {
  const BenchResults results = Sample();
  const SweepPoint& point = results.points[0];
  const Measurement& ours = point.measurements[0];
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(point, ours), 5e9);
  EXPECT_DOUBLE_EQ(BusBandwidth(point, ours), 7.5e9);
  EXPECT_DOUBLE_EQ(TimesLimit(point, ours), 2);
  EXPECT_DOUBLE_EQ(CpuSecondsPerGb(point, ours), 0.5);
  EXPECT_DOUBLE_EQ(TimesPsring(point, point.measurements[1]), 2);
}

TEST(BenchResults, ALinksRateIsItsMedianWindow) {
  const LinkStream link = {0, 1, {0.5, 0.5, 0.5}, {5e7, 6e7, 7e7}, {}};
  EXPECT_DOUBLE_EQ(LinkRate(link), 9.6e8);
  EXPECT_DOUBLE_EQ(LinkRatePercentile(link, 1), 8e8);
}

TEST(BenchCells, HoldARowForEveryContender) {
  const auto cells = PointCells(Sample());
  ASSERT_EQ(cells.size(), 3u);
  EXPECT_THAT(
      cells[1],
      ElementsAre("allreduce psring", "4", "100 MB", "20.0 ms", "30.0 ms",
                  "5.00 GB/s", "7.50 GB/s", "2.00", "0.500", "-", "195 MB"));
  EXPECT_THAT(cells[2], ElementsAre("allreduce openmpi", "4", "100 MB",
                                    "40.0 ms", "50.0 ms", "2.50 GB/s",
                                    "3.75 GB/s", "4.00", "1.000", "2.00", "-"));
}

TEST(BenchCells, OnSeveralHostsHoldPredictedAgainstMeasured) {
  BenchResults results = Sample();
  EXPECT_EQ(PointCells(results)[0].back(), "server");
  results.hosts = 4;
  results.points[0].predicted_seconds = 0.021;
  const auto cells = PointCells(results);
  EXPECT_EQ(cells[0].back(), "predicted");
  EXPECT_EQ(cells[1].back(), "21.0 ms (+5%)");
  EXPECT_EQ(cells[2].back(), "-");
  EXPECT_THAT(Describe(results.points[0]),
              HasSubstr("predicted 21.0 ms (+5%)"));
}

TEST(BenchJson, HoldsThePredictionWhereThereIsOne) {
  BenchResults results = Sample();
  EXPECT_TRUE(ToJson(results)["points"][0]["predicted_s"].is_null());
  results.points[0].predicted_seconds = 0.021;
  const auto point = ToJson(results)["points"][0];
  EXPECT_EQ(point["predicted_s"], 0.021);
  EXPECT_NEAR(point["prediction_error"], 0.05, 1e-9);
}

TEST(BenchCells, TrainingIsComparedWithOneWorkerAndWithDdp) {
  const auto cells = TrainCells(Sample());
  ASSERT_EQ(cells.size(), 4u);
  EXPECT_THAT(cells[1], ElementsAre("ring", "lenet", "fp32", "1", "200", "-",
                                    "-", "-", "-"));
  EXPECT_THAT(cells[2], ElementsAre("ring", "lenet", "fp32", "2", "300", "1.50",
                                    "2.00", "150 MB", "96.1%"));
}

TEST(BenchCells, ATrainingIsComparedWithinItsPrecision) {
  BenchResults results = Sample();
  results.trainings.push_back({"lenet", "ring", 2, {600}, "bf16"});
  EXPECT_THAT(TrainCells(results)[4], ElementsAre("ring", "lenet", "bf16", "2",
                                                  "600", "-", "-", "-", "-"));
}

TEST(BenchNotes, SayWhichPeerIsMissing) {
  EXPECT_THAT(Notes(Sample()), Contains("gloo is missing: no python3"));
  EXPECT_THAT(Notes(Sample()), Contains("openmpi: 4.1"));
}

TEST(BenchNotes, SayOfHostsWhoseMessagesWereEncrypted) {
  const auto encrypted = HasSubstr("psring's messages were encrypted");
  BenchResults results = Sample();
  results.encrypted = true;
  EXPECT_THAT(Notes(results), Not(Contains(encrypted))) << "on one host";
  results.hosts = 4;
  EXPECT_THAT(Notes(results), Contains(encrypted));
  results.encrypted = false;
  EXPECT_THAT(Notes(results), Not(Contains(encrypted)));
}

TEST(BenchWarnings, SayThatOtherProgramsLengthenedTheTimes) {
  BenchResults results = Sample();
  const auto busy = HasSubstr("Other programs kept 1.5 cores busy");
  EXPECT_THAT(Warnings(results), Not(Contains(busy)));
  results.other_cores = 0.05;
  EXPECT_THAT(Warnings(results), Not(Contains(HasSubstr("Other programs"))));
  results.other_cores = 1.5;
  EXPECT_THAT(Warnings(results), Contains(busy));
  EXPECT_THAT(RenderBenchHtml(results),
              HasSubstr("role=\"note\">Other programs kept 1.5 cores busy"));
}

TEST(BenchJson, HoldsEveryTime) {
  const auto json = ToJson(Sample());
  const auto& ours = json["points"][0]["measurements"][0];
  EXPECT_EQ(ours["seconds"].size(), 3u);
  EXPECT_EQ(ours["median_s"], 0.02);
  EXPECT_EQ(json["peers"][1]["found"], false);
  EXPECT_EQ(json["flags"]["sizes"], "100MB");
}

TEST(BenchHtml, StandsAloneAndEscapes) {
  const std::string html = RenderBenchHtml(Sample());
  EXPECT_THAT(html, HasSubstr("Chart"));
  EXPECT_THAT(html, HasSubstr("psring bench &lt;/script&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("{{")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
}

}  // namespace
}  // namespace psring
