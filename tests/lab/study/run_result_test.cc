#include "lab/study/run_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/study/goal.h"
#include "tests/lab/study/points.h"

namespace psring {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

ProcessMetrics Worker(int rank, double seconds) {
  ProcessMetrics worker;
  worker.role = "worker";
  worker.rank = rank;
  worker.num_parameters = 21840;
  worker.global_batch = 128;
  worker.steps = {{1, 0.1, 2.3, 100}, {2, 0.2, std::nan(""), 100}};
  worker.epochs = {{1, 50, seconds / 2, 1.0, 1.1, 0.8, 100},
                   {2, 100, seconds, 0.5, 0.6, 0.9, 100}};
  worker.end = ProcessEnd{100, seconds, 1000, 1000, 5000 + rank, 0, 0};
  worker.end->step_time = StepTime{0.5, 0.25, 0.125, {0.5, 0.75}};
  return worker;
}

ProcessMetrics Server(int rank, double staleness_mean, int64_t staleness_max) {
  ProcessMetrics server;
  server.role = "ps";
  server.rank = rank;
  server.end =
      ProcessEnd{0, 0, 3000, 3000, 700 + rank, staleness_mean, staleness_max};
  server.end->staleness_histogram = {{0, {3, 1}}, {1, {4, 0, 2}}};
  return server;
}

absl::StatusOr<RunResult> Ran() {
  return Summarize(At({}), {Server(0, 0.5, 2), Server(1, 0.25, 3), Worker(0, 4),
                            Worker(1, 5)});
}

// A script tells of none that psring's optimizers have not made.
TEST(Summarize, NothingIsPerStepWhereStepsAreNotKnown) {
  ProcessMetrics script = Worker(0, 4);
  script.end->step = 0;
  script.end->seconds = 0;
  const auto result = Summarize(At({}), {script, Server(0, 0, 0)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->worker_bytes_per_step, 0);
  EXPECT_EQ(result->server_bytes_per_step, 0);
  EXPECT_TRUE(std::isnan(result->images_per_second));
  EXPECT_TRUE(std::isnan(RunFromJson(ToJson(*result))->images_per_second));
}

// Before that a script loads libraries and data.
TEST(Summarize, AScriptsTimeCountsFromItsFirstStep) {
  ProcessMetrics script = Worker(0, 4);
  script.progress = {{0, 1.5, 0, 0}, {60, 3, 0, 0}};
  const auto result = Summarize(At({}), {script});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->epochs[0].seconds, 0.5);
  EXPECT_EQ(result->epochs[1].seconds, 2.5);
  EXPECT_EQ(result->steps[0].seconds, 0);
}

TEST(Summarize, WhatEndsWithNoFiniteNumberHasDiverged) {
  ProcessMetrics script = Worker(0, 4);
  script.infinite_loss = true;
  // The accuracy judges it.
  const auto judged = Summarize(At({}), {script});
  ASSERT_TRUE(judged.ok()) << judged.status();
  EXPECT_TRUE(std::isnan(judged->test_loss));
  EXPECT_EQ(judged->test_accuracy, 0.9);
  script.epochs.back().test_accuracy = std::nan("");
  const absl::Status status = Summarize(At({}), {script}).status();
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("diverged: what the evaluation after step 100"));
}

TEST(Summarize, TakesTheWorstProcessOfEachRole) {
  const auto result = Ran();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_steps, 100);
  EXPECT_EQ(result->seconds, 5);
  EXPECT_EQ(result->images_per_second, 100 * 128 / 5.0);
  EXPECT_EQ(result->test_accuracy, 0.9);
  EXPECT_EQ(result->test_loss, 0.6);
  EXPECT_EQ(result->worker_bytes_per_step, 10);
  EXPECT_EQ(result->server_bytes_per_step, 30);
  EXPECT_EQ(result->worker_peak_bytes, 5001);
  EXPECT_EQ(result->server_peak_bytes, 701);
  EXPECT_EQ(result->staleness_mean, 0.5);
  EXPECT_EQ(result->staleness_max, 3);
  // Whichever that is.
  EXPECT_EQ(Summarize(At({}), {Worker(0, 5), Worker(1, 4)})->seconds, 5);
}

// An epoch's last batch may be smaller, and workers may make different steps.
TEST(Summarize, CountsTheSamplesWhereWorkersDo) {
  std::vector<ProcessMetrics> all = {Worker(0, 4), Worker(1, 5)};
  all[0].end->samples = 6000;
  all[1].end->samples = 5000;
  EXPECT_EQ(Summarize(At({}), all)->images_per_second, 11000 / 5.0);
}

TEST(Summarize, TakesTheFullestGpu) {
  EXPECT_FALSE(Ran()->on_gpu);
  EXPECT_EQ(Ran()->worker_peak_gpu_bytes, 0);
  std::vector<ProcessMetrics> all = {Worker(0, 4), Worker(1, 5)};
  for (ProcessMetrics& worker : all) worker.on_gpu = true;
  all[0].end->peak_gpu_memory_bytes = 9000;
  const auto result = Summarize(At({}), all);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->on_gpu);
  EXPECT_EQ(result->worker_peak_gpu_bytes, 9000);
  EXPECT_EQ(RunFromJson(ToJson(*result))->worker_peak_gpu_bytes, 9000);
}

TEST(Summarize, KeepsTheDataOfTheWorkers) {
  std::vector<ProcessMetrics> all = {Worker(0, 4), Worker(1, 5)};
  for (ProcessMetrics& worker : all) worker.data = "mnist,crc32=1";
  const auto result = Summarize(At({}), all);
  EXPECT_EQ(RunFromJson(ToJson(*result))->data, "mnist,crc32=1");
}

TEST(Summarize, AddsTheHistogramsOfAllServers) {
  EXPECT_THAT(
      Ran()->staleness_histogram,
      ElementsAre(Pair(0, ElementsAre(6, 2)), Pair(1, ElementsAre(8, 0, 4))));
  EXPECT_EQ(Ran()->step_times.at(1).exposed, 0.25);
  // One of them has seen less.
  std::vector<ProcessMetrics> all = {Server(0, 0, 0), Server(1, 0, 0),
                                     Worker(0, 4)};
  all[1].end->staleness_histogram = {{1, {5}}};
  EXPECT_THAT(
      Summarize(At({}), all)->staleness_histogram,
      ElementsAre(Pair(0, ElementsAre(3, 1)), Pair(1, ElementsAre(9, 0, 2))));
}

TEST(Summarize, NamesWhatIsMissing) {
  const auto message = [](const std::vector<ProcessMetrics>& all) {
    return std::string(Summarize(At({}), all).status().message());
  };
  EXPECT_THAT(message({Server(0, 0, 0)}), HasSubstr("worker 0"));
  ProcessMetrics no_epochs = Worker(0, 1);
  no_epochs.epochs.clear();
  EXPECT_THAT(message({no_epochs}), HasSubstr("epochs"));
  ProcessMetrics no_end = Worker(1, 1);
  no_end.end.reset();
  EXPECT_THAT(message({Worker(0, 1), no_end}), HasSubstr("worker 1's end"));
}

Goal At(double accuracy) { return {Score::kAccuracy, accuracy}; }

TEST(FirstAt, IsTheFirstEvaluationAtTheTargetOrAbove) {
  EXPECT_EQ(At(0.8).FirstAt(*Ran())->step, 50);
  EXPECT_EQ(At(0.81).FirstAt(*Ran())->step, 100);
  EXPECT_EQ(At(0.91).FirstAt(*Ran()), nullptr);
}

TEST(FirstAt, OfALossIsTheFirstEvaluationAtTheTargetOrBelow) {
  const Goal loss = {Score::kTestLoss, 0.6};
  RunResult run = *Ran();
  run.epochs[0].test_loss = 0.7;
  EXPECT_EQ(loss.FirstAt(run)->step, 100);
  EXPECT_EQ(loss.BestOf(run), 0.6);
  run.epochs[1].test_loss = 0.61;
  EXPECT_EQ(loss.FirstAt(run), nullptr);
}

// One that has diverged, or does not tell.
TEST(FirstAt, NotANumberReachesNothing) {
  RunResult run = *Ran();
  for (EpochSample& epoch : run.epochs) epoch.test_loss = std::nan("");
  const Goal loss = {Score::kTestLoss, 1000};
  EXPECT_EQ(loss.FirstAt(run), nullptr);
  EXPECT_TRUE(std::isnan(loss.BestOf(run)));
  EXPECT_EQ(loss.Text(loss.BestOf(run)), "-");
}

TEST(UseOneUnit, ARunThatStayedBelowOnePercentIsPercentAsTheOthersAre) {
  std::vector<RunResult> runs(3, *Ran());
  runs[0].printed_percent = true;  // 80% and 90%
  runs[1].printed_percent = false;
  runs[1].epochs.resize(1);
  runs[1].epochs[0].test_accuracy = runs[1].test_accuracy = 1;
  UseOneUnit(runs);
  EXPECT_EQ(At(0).BestOf(runs[0]), 0.9);
  EXPECT_EQ(At(0).BestOf(runs[1]), 0.01);
  EXPECT_EQ(runs[1].test_accuracy, 0.01);
  EXPECT_EQ(At(0).BestOf(runs[2]), 0.9);  // nothing was looked for
  const std::vector<RunResult> once = runs;
  UseOneUnit(runs);
  EXPECT_EQ(ToJson(runs[1]), ToJson(once[1]));
}

TEST(UseOneUnit, FractionsStay) {
  std::vector<RunResult> runs(2, *Ran());
  runs[0].printed_percent = runs[1].printed_percent = false;
  UseOneUnit(runs);
  EXPECT_EQ(At(0).BestOf(runs[0]), 0.9);
  EXPECT_EQ(RunFromJson(ToJson(runs[0]))->printed_percent, false);
}

TEST(RunFromJson, GivesBackWhatToJsonWrote) {
  RunResult run = *Ran();
  run.weights_crc32 = 0xabc;
  run.predicted_step_s = 0.0625;
  const auto back = RunFromJson(nlohmann::json::parse(ToJson(run).dump()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(*back), ToJson(run));
  EXPECT_EQ(back->point, run.point);
  EXPECT_EQ(back->weights_crc32, 0xabcu);
  EXPECT_EQ(ToJson(run)["weights_crc32"], "00000abc");
  EXPECT_EQ(back->step_times.at(0).compute, 0.5);
  EXPECT_EQ(back->step_times.at(0).exposed, 0.25);
  EXPECT_EQ(back->step_times.at(0).wait, 0.125);
  EXPECT_THAT(back->step_times.at(0).busy, ElementsAre(0.5, 0.75));
  EXPECT_EQ(back->predicted_step_s, 0.0625);
  EXPECT_TRUE(std::isnan(back->steps[1].loss));
  run.weights_crc32.reset();
  EXPECT_EQ(RunFromJson(ToJson(run))->weights_crc32, std::nullopt);
}

TEST(RunFromJson, WantsAnEvaluation) {
  RunResult run = *Ran();
  run.epochs.clear();
  EXPECT_TRUE(absl::IsDataLoss(RunFromJson(ToJson(run)).status()));
}

TEST(RunFromJson, SaysWhatIsMissingOrWrong) {
  for (const char* key : {"point", "seconds", "weights_crc32", "epochs"}) {
    nlohmann::json json = ToJson(*Ran());
    json.erase(key);
    const auto back = RunFromJson(json);
    ASSERT_FALSE(back.ok()) << key;
    EXPECT_THAT(std::string(back.status().message()), HasSubstr(key));
  }
  nlohmann::json json = ToJson(*Ran());
  json["weights_crc32"] = "none";
  EXPECT_EQ(RunFromJson(json).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace psring
