#include "lab/study/run_predictor.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/lab/study/points.h"

namespace psring {
namespace {

RunResult RunOf(const AxisTexts& at, const std::vector<double>& compute,
                double injected = 0) {
  RunResult run;
  run.point = At(at);
  run.num_parameters = 2'500'000;  // 10 MB
  int rank = 0;
  for (const double seconds : compute) {
    run.step_times[rank++] = {seconds, 0.001, injected, {seconds + injected}};
  }
  return run;
}

std::optional<double> Predict(const RunResult& run, const Args& flags = {}) {
  const auto predictor = RunPredictor::Create(flags);
  EXPECT_TRUE(predictor.ok()) << predictor.status();
  return predictor->StepSeconds(run);
}

// Steps are long, so that a busy host, which sums slowly, changes little.
TEST(RunPredictor, AStepIsTheSlowestWorkersComputingAndAnExchange) {
  for (const char* way : {"ps-bsp", "ring"}) {
    const auto step = Predict(RunOf({{"mode", way}}, {20, 60}));
    ASSERT_TRUE(step) << way;
    EXPECT_GT(*step, 60) << way;
    EXPECT_LT(*step, 66) << way;
  }
}

TEST(RunPredictor, AnInjectedWaitIsPartOfTheComputing) {
  const auto step = Predict(RunOf({{"slow", "worker:0:x2"}}, {20, 20}, 20));
  ASSERT_TRUE(step);
  EXPECT_GT(*step, 40);
  EXPECT_LT(*step, 44);
}

TEST(RunPredictor, WhoeverIsSlowInAStepHoldsItUp) {
  RunResult run = RunOf({{"slow", "random:p=0.5:x3"}}, {20, 20});
  for (int rank : {0, 1}) run.step_times[rank].busy = {10, 10, 30, 30};
  // A mean of 20 each, but one of two is slow in three steps of four.
  const auto step = Predict(run);
  ASSERT_TRUE(step);
  EXPECT_GT(*step, 22.5);
  EXPECT_LT(*step, 28);
}

TEST(RunPredictor, ALinkTakesItsTime) {
  // Each way 10 MB through 10 Mbit/s, most of it after the computing.
  const auto step =
      Predict(RunOf({{"mode", "ring"}, {"link", "10mbit"}}, {0.1, 0.1}));
  ASSERT_TRUE(step);
  EXPECT_GT(*step, 8);
  EXPECT_LT(*step, 10);
}

TEST(RunPredictor, IsSilentAboutWhatItDoesNotSimulate) {
  for (const AxisTexts& at :
       std::initializer_list<AxisTexts>{{{"mode", "ps-async"}},
                                        {{"mode", "ps-ssp:3"}},
                                        {{"mode", "ps-bsp+backup-workers=1"}},
                                        {{"mode", "ddp"}},
                                        {{"compress", "fp16"}},
                                        {{"link", "worker:1:100mbit"}}}) {
    EXPECT_FALSE(Predict(RunOf(at, {0.1, 0.1}))) << at[0].second;
  }
  const RunResult known = RunOf({}, {0.1, 0.1});
  EXPECT_FALSE(Predict(known, {"--local-steps=4"}));
  EXPECT_FALSE(Predict(known, {"--local-steps", "4"}));
  EXPECT_TRUE(Predict(known, {"--lr-schedule=cosine"}));
  EXPECT_TRUE(Predict(known, {"--device", "cpu"}));
  EXPECT_FALSE(Predict(RunOf({}, {0.1})));  // a worker is missing
  RunResult on_gpus = known;
  on_gpus.on_gpu = true;
  EXPECT_FALSE(Predict(on_gpus));
}

}  // namespace
}  // namespace psring
