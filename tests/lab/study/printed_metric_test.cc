#include "lab/study/printed_metric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

// Of worker 0, of whose run `known` is known.
std::vector<EpochSample> EpochsOf(const PrintedMetric& metric,
                                  const ProcessMetrics& known = {}) {
  std::vector<ProcessMetrics> all = {known};
  all[0].role = "worker";
  metric.AddTo(all);
  return all[0].epochs;
}

TEST(PrintedMetric, TakesEveryNumberThatWorkerZeroPrints) {
  PrintedMetric metric("accuracy ([0-9.]+)%", /*is_loss=*/false);
  metric.Take("epoch 1: loss 0.3");
  metric.Take("test: loss 0.2, accuracy 91.5%");
  metric.Take("test: loss 0.1, accuracy 95.0%, done");
  std::vector<ProcessMetrics> all(2);
  all[0].role = all[1].role = "worker";
  all[1].rank = 1;
  all[0].end.emplace().step = 100;
  metric.AddTo(all);
  ASSERT_EQ(all[0].epochs.size(), 2u);
  EXPECT_EQ(all[0].epochs[0].test_accuracy, 0.915);
  EXPECT_EQ(all[0].epochs[0].step, 0);  // not known
  EXPECT_EQ(all[0].epochs[1].test_accuracy, 0.95);
  EXPECT_EQ(all[0].epochs[1].epoch, 2);
  EXPECT_GE(all[0].epochs[1].seconds, all[0].epochs[0].seconds);
  EXPECT_TRUE(all[1].epochs.empty());
}

TEST(PrintedMetric, StandsForWhatTheScriptLogs) {
  PrintedMetric metric("accuracy ([0-9.]+)", /*is_loss=*/false);
  metric.Take("accuracy 0.5");
  ProcessMetrics known;
  known.epochs.resize(3);
  const std::vector<EpochSample> epochs = EpochsOf(metric, known);
  ASSERT_EQ(epochs.size(), 1u);
  EXPECT_EQ(epochs[0].test_accuracy, 0.5);
}

// A progress bar that draws itself anew has no line's end.
TEST(PrintedMetric, IsFoundAtTheEndOfAnEndlessLine) {
  PrintedMetric metric(".*accuracy ([0-9.]+)", /*is_loss=*/false);
  std::string line(10 << 20, '.');
  line += "accuracy 0.5";
  metric.Take(line);
  const std::vector<EpochSample> epochs = EpochsOf(metric);
  ASSERT_EQ(epochs.size(), 1u);
  EXPECT_EQ(epochs[0].test_accuracy, 0.5);
}

TEST(PrintedMetric, MayEndASentence) {
  PrintedMetric metric("accuracy is ([0-9.]+)", /*is_loss=*/false);
  metric.Take("Epoch 1 is over, and its accuracy is 0.915.");
  const std::vector<EpochSample> epochs = EpochsOf(metric);
  ASSERT_EQ(epochs.size(), 1u);
  EXPECT_EQ(epochs[0].test_accuracy, 0.915);
}

TEST(PrintedMetric, MayHaveMoreInItsGroupThanTheNumber) {
  PrintedMetric metric("acc=(\\S+)", /*is_loss=*/false);
  metric.Take("[1] (acc=0.74%) loss=0.3");
  metric.Take("[2] acc=0.91, loss=0.2");
  metric.Take("[3] acc=... loss=0.1");
  const std::vector<EpochSample> epochs = EpochsOf(metric);
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_DOUBLE_EQ(epochs[0].test_accuracy, 0.0074);
  EXPECT_DOUBLE_EQ(epochs[1].test_accuracy, 0.0091);
}

// 30 steps in 50 seconds, and 970 in the eight minutes after that.
TEST(PrintedMetric, TakesItsStepFromTheProgressOfThatTime) {
  PrintedMetric metric("accuracy ([0-9.]+)", /*is_loss=*/false);
  metric.Take("accuracy 0.5");
  const double now = absl::ToDoubleSeconds(WallNow() - absl::UnixEpoch());
  const auto step_after = [&](double seconds) {
    ProcessMetrics known;
    known.started_s = now - seconds;
    known.progress = {{0, 10, 0, 0}, {30, 60, 0, 0}, {1000, 540, 0, 0}};
    return static_cast<double>(EpochsOf(metric, known)[0].step);
  };
  EXPECT_EQ(step_after(5), 0);
  EXPECT_NEAR(step_after(35), 15, 3);
  EXPECT_NEAR(step_after(300), 515, 5);
  EXPECT_EQ(step_after(600), 1000);
}

// The 20th began after 10 seconds, and the 21st after an evaluation.
TEST(PrintedMetric, ComesAfterTheStepThatBeganBeforeIt) {
  PrintedMetric metric("accuracy ([0-9.]+)", /*is_loss=*/false);
  metric.Take("accuracy 0.5");
  const double now = absl::ToDoubleSeconds(WallNow() - absl::UnixEpoch());
  for (const double seconds : {12, 19}) {
    ProcessMetrics known;
    known.started_s = now - seconds;
    known.progress = {{0, 1, 0, 0}, {19, 10, 0, 0}, {20, 20, 0, 0}};
    EXPECT_EQ(EpochsOf(metric, known)[0].step, 20);
  }
}

TEST(PrintedMetric, ThatIsNoNumberAtLastHasDiverged) {
  PrintedMetric metric("loss (\\S+)", /*is_loss=*/true);
  std::vector<ProcessMetrics> all(1);
  all[0].role = "worker";
  for (const auto& [line, diverged] :
       {std::pair("loss nan", true), {"loss 0.5", false}, {"loss inf", true}}) {
    metric.Take(line);
    metric.AddTo(all);
    EXPECT_EQ(all[0].infinite_loss, diverged) << line;
  }
}

TEST(PrintedMetric, OfALossIsNoAccuracyAndNoPercentage) {
  PrintedMetric metric("perplexity ([0-9.]+)", /*is_loss=*/true);
  metric.Take("perplexity 35.2");
  const std::vector<EpochSample> epochs = EpochsOf(metric);
  ASSERT_EQ(epochs.size(), 1u);
  EXPECT_EQ(epochs[0].test_loss, 35.2);
  EXPECT_TRUE(std::isnan(epochs[0].test_accuracy));
  EXPECT_EQ(metric.percent(), std::nullopt);
}

TEST(PrintedMetric, WithoutAPatternNothingChanges) {
  PrintedMetric metric("", /*is_loss=*/false);
  metric.Take("accuracy 3");
  ProcessMetrics known;
  known.epochs.resize(1);
  EXPECT_EQ(EpochsOf(metric, known).size(), 1u);
  EXPECT_EQ(metric.percent(), std::nullopt);
}

TEST(PrintedMetric, NumbersAboveOneArePercent) {
  PrintedMetric percent("accuracy ([0-9.]+)", /*is_loss=*/false),
      unclear("accuracy ([0-9.]+)", /*is_loss=*/false);
  percent.Take("accuracy 1.00");
  percent.Take("accuracy 60");
  unclear.Take("accuracy 1.00");
  EXPECT_EQ(percent.percent(), true);
  EXPECT_EQ(unclear.percent(), false);
}

// As of a model that has learned nothing yet: 0.74% is no 74%.
TEST(PrintedMetric, ANumberWithAPercentSignIsAPercentageHoweverSmall) {
  for (const char* line : {"Acc@1 0.74%", "Acc@1 0.74 % of the test images"}) {
    PrintedMetric metric("Acc@1 ([0-9.]+)", /*is_loss=*/false);
    metric.Take(line);
    EXPECT_EQ(metric.percent(), true) << line;
    EXPECT_DOUBLE_EQ(EpochsOf(metric)[0].test_accuracy, 0.0074) << line;
  }
  PrintedMetric other("Acc@1 ([0-9.]+)", /*is_loss=*/false);
  other.Take("Acc@1 0.74, 30% done");
  EXPECT_EQ(other.percent(), false);
}

TEST(PrintedMetric, RefusesWhatCannotFindANumber) {
  EXPECT_TRUE(CheckMetric("acc=([0-9.]+)").ok());
  EXPECT_THAT(std::string(CheckMetric("acc=(").message()),
              HasSubstr("no regular expression"));
  EXPECT_THAT(std::string(CheckMetric("acc=[0-9]+").message()),
              HasSubstr("parentheses"));
}

}  // namespace
}  // namespace psring
