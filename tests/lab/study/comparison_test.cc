#include "lab/study/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/lab/study/points.h"

namespace psring {
namespace {

using testing::SizeIs;

// Two epochs, the second one ends at `accuracy`.
RunResult RunOf(const AxisTexts& at, double rate, double accuracy) {
  RunResult run;
  run.point = At(at);
  run.num_parameters = 1000;
  run.num_steps = 20;
  run.seconds = 20000 / rate;
  run.images_per_second = rate;
  run.weights_crc32 = 0xabc;
  run.test_accuracy = accuracy;
  run.epochs = {{1, 10, 10000 / rate, 1, 1, accuracy - 0.05, rate},
                {2, 20, 20000 / rate, 1, 1, accuracy, rate}};
  return run;
}

const AxisTexts kTwoWays = {{"mode", "ps-bsp,ring"}, {"seed", "2"}};

Comparison TwoWays(const Aim& aim = {}) {
  return Compare(ValuesOf(kTwoWays),
                 {RunOf({}, 1000, 0.97), RunOf({{"mode", "ring"}}, 2000, 0.90),
                  RunOf({{"seed", "1"}}, 500, 0.955),
                  RunOf({{"mode", "ring"}, {"seed", "1"}}, 2500, 0.92)},
                 aim);
}

TEST(Compare, GroupsRunsThatDifferInTheirSeeds) {
  const Comparison comparison = TwoWays();
  ASSERT_THAT(comparison.variants, SizeIs(2));
  EXPECT_EQ(comparison.variants[0].label, "ps-bsp");
  EXPECT_THAT(comparison.variants[0].runs, SizeIs(2));
  const Spread rate =
      SpreadOf(comparison.variants[1],
               [](const RunResult& run) { return run.images_per_second; });
  EXPECT_EQ(rate.mean, 2250);
  EXPECT_EQ(rate.min, 2000);
  EXPECT_EQ(rate.max, 2500);
}

TEST(Compare, TheTargetIsWhatEveryWayReachesWithEverySeed) {
  const Comparison comparison = TwoWays();
  EXPECT_DOUBLE_EQ(comparison.goal.target, 0.90);
  EXPECT_EQ(SecondsToTarget(comparison, comparison.variants[0])->max, 20);
  EXPECT_EQ(StepsToTarget(comparison, comparison.variants[0])->mean, 10);
}

// 93.3 / 100 is less than the three digits of it, and a float32 than its
// number.
TEST(Compare, ATargetIsReachedByWhatItWasRoundedFrom) {
  for (int tenths = 0; tenths <= 1000; ++tenths) {
    const double accuracy = tenths / 10.0 / 100;
    const Goal goal = {Score::kAccuracy, tenths / 1000.0};
    EXPECT_TRUE(goal.IsReachedBy(accuracy)) << tenths;
    EXPECT_TRUE(goal.IsReachedBy(static_cast<float>(accuracy))) << tenths;
    EXPECT_FALSE(goal.IsReachedBy(accuracy - 1e-5)) << tenths;
    const Goal loss = {Score::kTestLoss, tenths / 1000.0};
    EXPECT_TRUE(loss.IsReachedBy(static_cast<float>(tenths / 1000.0)));
    EXPECT_FALSE(loss.IsReachedBy(tenths / 1000.0 + 1e-5)) << tenths;
  }
  EXPECT_FALSE(Goal{}.IsReachedBy(std::nan("")));
}

// Of a script that tells what a float32 tensor holds.
TEST(Compare, ATargetOfFloat32IsThatOfItsNumber) {
  const auto target = [](float value, Score score) {
    RunResult run = RunOf({}, 1000, value);
    run.test_loss = value;
    for (EpochSample& epoch : run.epochs) epoch.test_loss = value;
    const Comparison comparison =
        Compare(ValuesOf({}), {run}, {.score = score});
    EXPECT_EQ(NumReached(comparison, comparison.variants[0]), 1) << value;
    return comparison.goal.target;
  };
  for (int i = 0; i <= 1000; ++i) {
    const double number = i / 1000.0;
    const auto value = static_cast<float>(number);
    EXPECT_DOUBLE_EQ(target(value, Score::kAccuracy), number);
    EXPECT_DOUBLE_EQ(target(value, Score::kTestLoss), number);
    // What is a little worse is not rounded to what it does not reach.
    target(static_cast<float>(number - 1.5e-6), Score::kAccuracy);
    target(static_cast<float>(number * (1 + 1.5e-6)), Score::kTestLoss);
  }
}

// Of a script, say, whose last evaluations told no number.
TEST(EndOf, IsOfTheWorstSeedWhichMayTellNone) {
  const Goal goal = {Score::kAccuracy, 0.5};
  const auto end = [&](const std::vector<double>& accuracies) {
    Variant variant;
    for (const double accuracy : accuracies) {
      variant.runs.push_back(RunOf({}, 1000, accuracy));
    }
    return EndOf(goal, variant);
  };
  EXPECT_EQ(end({0.9, 0.7, 0.8}), 0.7);
  EXPECT_TRUE(std::isnan(end({std::nan(""), 0.7, 0.8})));
  EXPECT_TRUE(std::isnan(end({0.9, std::nan(""), 0.8})));
}

TEST(Compare, AWayThatDivergedSetsNoTarget) {
  const Comparison comparison = Compare(
      ValuesOf({{"mode", "ps-bsp,ring"}}),
      {RunOf({}, 1000, 0.97), RunOf({{"mode", "ring"}}, 2000, 0.10)}, {});
  EXPECT_DOUBLE_EQ(comparison.goal.target, 0.97);
  EXPECT_FALSE(SecondsToTarget(comparison, comparison.variants[1]));
  EXPECT_EQ(NumReached(comparison, comparison.variants[1]), 0);
}

// Of scripts that have no accuracy.
TEST(Compare, LossesCountWhereThereIsNoAccuracy) {
  const auto run = [](const AxisTexts& at, std::vector<double> losses) {
    RunResult result = RunOf(at, 1000, std::nan(""));
    result.epochs.clear();
    for (const double loss : losses) {
      const auto i = static_cast<int64_t>(result.epochs.size()) + 1;
      result.epochs.push_back(
          {i, 10 * i, 2.0 * static_cast<double>(i), 0, loss, std::nan(""), 0});
    }
    result.test_loss = losses.back();
    return result;
  };
  const std::vector<RunResult> runs = {
      run({}, {5, 3.2, 3.01234}), run({{"mode", "ring"}}, {5.1, 3.1, 3.16}),
      run({{"seed", "1"}}, {5, 3.1, 3.03}),
      run({{"mode", "ring"}, {"seed", "1"}}, {5, 3.05, 2.9})};
  const Comparison comparison = Compare(ValuesOf(kTwoWays), runs, {});
  EXPECT_EQ(comparison.goal.score, Score::kTestLoss);
  // The ring's first seed comes least far.
  EXPECT_DOUBLE_EQ(comparison.goal.target, 3.1);
  EXPECT_EQ(SecondsToTarget(comparison, comparison.variants[0])->mean, 5);
  EXPECT_EQ(SecondsToTarget(comparison, comparison.variants[1])->mean, 4);
  EXPECT_EQ(NumReached(Compare(ValuesOf(kTwoWays), runs, {.target = 3.05}),
                       comparison.variants[1]),
            1);
  // Rounded up to four digits, which all reach.
  EXPECT_DOUBLE_EQ(Compare(ValuesOf({}), {runs[0]}, {}).goal.target, 3.013);
}

TEST(Compare, AWayThatEndsFarAboveTheBestLossSetsNoTarget) {
  const auto run = [](const AxisTexts& at, double last) {
    RunResult result = RunOf(at, 1000, 0.5);
    result.epochs = {{1, 10, 1, 0, 2, 0.5, 0}, {2, 20, 2, 0, last, 0.5, 0}};
    result.test_loss = last;
    return result;
  };
  const auto target = [&](double other) {
    return Compare(ValuesOf({{"mode", "ps-bsp,ring"}}),
                   {run({}, 0.4), run({{"mode", "ring"}}, other)},
                   {.score = Score::kTestLoss})
        .goal.target;
  };
  EXPECT_DOUBLE_EQ(target(0.79), 0.79);  // a quarter of the way from 2
  EXPECT_DOUBLE_EQ(target(0.81), 0.4);
  EXPECT_DOUBLE_EQ(target(std::nan("")), 0.4);
}

// Ten steps an evaluation, of which each tells an accuracy, or a loss.
RunResult CourseOf(const AxisTexts& at, const std::vector<double>& values,
                   Score score = Score::kAccuracy) {
  RunResult run = RunOf(at, 1000, std::nan(""));
  run.epochs.clear();
  const bool by_loss = score == Score::kTestLoss;
  for (const double value : values) {
    const auto i = static_cast<int64_t>(run.epochs.size()) + 1;
    run.epochs.push_back({i, 10 * i, static_cast<double>(i), 0,
                          by_loss ? value : std::nan(""),
                          by_loss ? std::nan("") : value, 0});
  }
  (by_loss ? run.test_loss : run.test_accuracy) = values.back();
  return run;
}

TEST(Compare, AWayThatCollapsedSetsNoTargetHoweverFarItHadCome) {
  const auto target = [](std::vector<double> bsp, std::vector<double> ring) {
    return Compare(ValuesOf({{"mode", "ps-bsp,ring"}}),
                   {CourseOf({}, bsp), CourseOf({{"mode", "ring"}}, ring)}, {})
        .goal.target;
  };
  EXPECT_DOUBLE_EQ(target({0.8, 0.93, 0.1}, {0.5, 0.8, 0.95}), 0.95);
  // The level is still what both had come to.
  EXPECT_DOUBLE_EQ(target({0.8, 0.93, 0.9}, {0.5, 0.8, 0.95}), 0.93);
  // One of two seeds is enough.
  EXPECT_DOUBLE_EQ(
      Compare(
          ValuesOf(kTwoWays),
          {CourseOf({}, {0.93, 0.93}), CourseOf({{"seed", "1"}}, {0.93, 0.1}),
           CourseOf({{"mode", "ring"}}, {0.95}),
           CourseOf({{"mode", "ring"}, {"seed", "1"}}, {0.95})},
          {})
          .goal.target,
      0.95);
}

// Of scripts that tell an accuracy, too, so that their runs do not fail.
TEST(Compare, WhereEveryWayDivergesTheTargetIsHowFarAllHadCome) {
  const double nan = std::nan("");
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ps-bsp,ring"}}),
              {CourseOf({}, {2, 0.5, nan}, Score::kTestLoss),
               CourseOf({{"mode", "ring"}}, {2, 0.4, nan}, Score::kTestLoss)},
              {.score = Score::kTestLoss});
  EXPECT_DOUBLE_EQ(comparison.goal.target, 0.5);
  EXPECT_EQ(SecondsToTarget(comparison, comparison.variants[0])->mean, 2);
}

TEST(Far, IsATenthOrOfLossesAQuarterOfTheWay) {
  const Goal accuracy = {Score::kAccuracy, 0.9}, loss = {Score::kTestLoss, 2};
  const Variant any = {At({}), "", {CourseOf({}, {0.5})}};
  EXPECT_FALSE(Far(accuracy, 0.82, 0.9, any));
  EXPECT_TRUE(Far(accuracy, 0.8, 0.9, any));
  const Variant rose = {At({}), "", {CourseOf({}, {2, 5}, Score::kTestLoss)}};
  EXPECT_FALSE(Far(loss, 2.1, 2, rose));
  EXPECT_TRUE(Far(loss, 5, 2, rose));
  const Variant fell = {At({}), "", {CourseOf({}, {6, 2}, Score::kTestLoss)}};
  EXPECT_FALSE(Far(loss, 2.9, 2, fell));
  EXPECT_TRUE(Far(loss, 3.1, 2, fell));
}

// A script may evaluate the weights that it starts with.
TEST(Compare, WhatWasSoBeforeTheFirstStepIsNotReached) {
  RunResult run = CourseOf({}, {2.3, 2.5, 2.4}, Score::kTestLoss);
  run.epochs[0].step = 0;
  const Comparison comparison = Compare(ValuesOf({}), {run}, {});
  EXPECT_DOUBLE_EQ(comparison.goal.target, 2.4);
  EXPECT_EQ(SecondsToTarget(comparison, comparison.variants[0])->mean, 3);
  // No step is known of what another program prints.
  for (EpochSample& epoch : run.epochs) epoch.step = 0;
  EXPECT_DOUBLE_EQ(Compare(ValuesOf({}), {run}, {}).goal.target, 2.3);
}

TEST(ScoreOf, IsWhatAllRunsTell) {
  const RunResult accuracy = CourseOf({}, {0.9});
  const RunResult loss = CourseOf({}, {2}, Score::kTestLoss);
  RunResult both = accuracy;
  both.epochs[0].test_loss = 2;
  EXPECT_EQ(ScoreOf({}, {both, both}), Score::kAccuracy);
  EXPECT_EQ(ScoreOf({}, {both, loss}), Score::kTestLoss);
  EXPECT_EQ(ScoreOf({}, {accuracy, loss}), Score::kAccuracy);
  EXPECT_EQ(ScoreOf({}, {loss, loss}), Score::kTestLoss);
  EXPECT_EQ(ScoreOf({.score = Score::kAccuracy}, {loss}), Score::kAccuracy);
}

TEST(Compare, AGivenTargetThatASeedMissesHasNoTime) {
  const Comparison comparison = TwoWays({.target = 0.96});
  EXPECT_EQ(comparison.goal.target, 0.96);
  EXPECT_FALSE(SecondsToTarget(comparison, comparison.variants[0]));
  EXPECT_EQ(NumReached(comparison, comparison.variants[0]), 1);
}

TEST(Compare, WeightsAreComparedSeedBySeed) {
  EXPECT_EQ(TwoWays().identical_weights, true);
  RunResult other = RunOf({{"mode", "ring"}}, 1, 0.9);
  other.weights_crc32 = 1;
  const auto values = ValuesOf({{"mode", "ps-bsp,ring"}});
  EXPECT_EQ(Compare(values, {RunOf({}, 1, 0.9), other}, {}).identical_weights,
            false);
  EXPECT_EQ(Compare(values, {RunOf({}, 1, 0.9)}, {}).identical_weights,
            std::nullopt);
  // Other seeds and other numbers of workers have weights of their own.
  std::vector<RunResult> runs;
  for (const char* workers : {"2", "4"}) {
    for (const char* seed : {"0", "1"}) {
      for (const char* way : {"ps-bsp", "ring"}) {
        runs.push_back(RunOf(
            {{"mode", way}, {"workers", workers}, {"seed", seed}}, 1, 0.9));
        runs.back().weights_crc32 = 2 * (workers[0] - '0') + (seed[0] - '0');
      }
    }
  }
  const auto identical = [&] {
    return Compare(ValuesOf({{"mode", "ps-bsp,ring"},
                             {"workers", "2,4"},
                             {"seed", "2"}}),
                   runs, {})
        .identical_weights;
  };
  EXPECT_EQ(identical(), true);
  runs[0].weights_crc32 = 99;  // of the first pair alone
  EXPECT_EQ(identical(), false);
}

TEST(StepsToTarget, AreNotKnownOfAScriptThatTellsNone) {
  RunResult run = RunOf({}, 1000, 0.9);
  for (EpochSample& epoch : run.epochs) epoch.step = 0;
  const Comparison comparison = Compare(ValuesOf({}), {run}, {});
  EXPECT_TRUE(SecondsToTarget(comparison, comparison.variants[0]));
  EXPECT_FALSE(StepsToTarget(comparison, comparison.variants[0]));
  EXPECT_FALSE(StepSecondsToTarget(comparison, comparison.variants[0]));
}

TEST(Compare, WeightsThatAScriptHasNotToldAreNotTheSame) {
  RunResult silent = RunOf({}, 1, 0.9);
  silent.weights_crc32.reset();
  const RunResult ring = RunOf({{"mode", "ring"}}, 1, 0.9);
  RunResult silent_ring = ring;
  silent_ring.weights_crc32.reset();
  const auto values = ValuesOf({{"mode", "ps-bsp,ring"}});
  EXPECT_EQ(Compare(values, {silent, ring}, {}).identical_weights,
            std::nullopt);
  EXPECT_EQ(Compare(values, {silent, silent_ring}, {}).identical_weights,
            std::nullopt);
}

TEST(Compare, ARunThatHasNotToldItsWeightsHidesNoDifferenceOfOthers) {
  const auto seed_1 = [](uint32_t weights) {
    RunResult silent = RunOf({}, 1, 0.9);
    silent.weights_crc32.reset();
    RunResult other = RunOf({{"mode", "ring"}, {"seed", "1"}}, 1, 0.9);
    other.weights_crc32 = weights;
    return Compare(ValuesOf(kTwoWays),
                   {silent, RunOf({{"mode", "ring"}}, 1, 0.9),
                    RunOf({{"seed", "1"}}, 1, 0.9), other},
                   {})
        .identical_weights;
  };
  EXPECT_EQ(seed_1(0xdef), false);
  EXPECT_EQ(seed_1(0xabc), std::nullopt) << "the other pair is unknown";
}

TEST(Compare, WeightsOfDifferentFaultsOrLossyCompressionAreNotCompared) {
  const auto values = ValuesOf({{"compress", "topk:0.1"}});
  const Comparison lossy =
      Compare(values,
              {RunOf({{"compress", "topk:0.1"}}, 1, 0.9),
               RunOf({{"compress", "topk:0.1"}, {"mode", "ring"}}, 1, 0.9)},
              {});
  ASSERT_THAT(lossy.variants, SizeIs(2));
  EXPECT_EQ(lossy.identical_weights, std::nullopt);
}

TEST(Meet, RangesThatTouchCannotBeToldApart) {
  EXPECT_TRUE(Meet({2, 1, 3}, {4, 3, 5}));
  EXPECT_FALSE(Meet({2, 1, 2.9}, {4, 3, 5}));
  EXPECT_TRUE(Meet({4, 1, 9}, {4, 3, 5}));
}

TEST(GroupsAlong, ARingStandsBesideEveryNumberOfServers) {
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"servers", "1,2"}}),
              {RunOf({}, 1, 0.9), RunOf({{"servers", "2"}}, 1, 0.9),
               RunOf({{"mode", "ring"}, {"servers", kAny}}, 1, 0.9)},
              {});
  const auto by_way = GroupsAlong(comparison, "mode");
  ASSERT_THAT(by_way, SizeIs(2));
  EXPECT_EQ(by_way[0].label, "1 server");
  EXPECT_THAT(by_way[0].variants, SizeIs(2));
  EXPECT_EQ(by_way[1].label, "2 servers");
  EXPECT_THAT(by_way[1].variants, SizeIs(2));
  const auto by_servers = GroupsAlong(comparison, "servers");
  ASSERT_THAT(by_servers, SizeIs(1));
  EXPECT_EQ(by_servers[0].label, "ps-bsp");
}

TEST(GroupsAlong, ARingThatComesFirstFoundsNoGroupOfAllNumbersOfServers) {
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ring,ps-bsp"}, {"servers", "1,2"}}),
              {RunOf({{"mode", "ring"}, {"servers", kAny}}, 1, 0.9),
               RunOf({}, 1, 0.9), RunOf({{"servers", "2"}}, 1, 0.9)},
              {});
  const auto by_way = GroupsAlong(comparison, "mode");
  ASSERT_THAT(by_way, SizeIs(2));
  EXPECT_EQ(by_way[0].label, "1 server");
  EXPECT_THAT(by_way[0].variants, SizeIs(2));
  EXPECT_EQ(by_way[1].label, "2 servers");
  EXPECT_THAT(by_way[1].variants, SizeIs(2));
}

TEST(FormulaOf, IsOfAnExchangeInEveryStep) {
  const auto rarely =
      Compare(ValuesOf({}), {RunOf({}, 1, 0.9)}, {}, {}, /*every_step=*/false);
  EXPECT_FALSE(FormulaOf(rarely.variants[0]));
}

// A script may not tell how large its model is.
TEST(FormulaOf, NeedsTheModelsSize) {
  RunResult run = RunOf({{"mode", "ring"}}, 1, 0.9);
  run.num_parameters = 0;
  EXPECT_FALSE(FormulaOf({run.point, "", {run}}));
}

TEST(FormulaOf, IsTheCostModels) {
  const auto of = [](const AxisTexts& at) {
    return FormulaOf({At(at), "", {RunOf(at, 1, 0.9)}});
  };
  EXPECT_EQ(of({{"workers", "4"}, {"servers", "2"}})->worker_bytes, 4000);
  EXPECT_EQ(of({{"workers", "4"}, {"servers", "2"}})->server_bytes, 8000);
  EXPECT_EQ(of({{"mode", "ring"}, {"workers", "4"}})->worker_bytes, 6000);
  EXPECT_EQ(of({{"mode", "ring"}, {"workers", "1"}})->worker_bytes, 0);
  const auto half = of({{"compress", "fp16"}, {"workers", "4"}});
  EXPECT_EQ(half->worker_bytes, 2000);
  EXPECT_EQ(half->server_bytes, 16000);
  EXPECT_EQ(of({{"mode", "ring"}, {"compress", "fp16"}})->worker_bytes, 3000);
  EXPECT_EQ(of({{"compress", "topk:0.01"}})->worker_bytes, 80);
  EXPECT_FALSE(of({{"mode", "ps-bsp+local-steps=2"}}));
}

TEST(PredictionOf, IsTheMeanOfAllRunsOrNothing) {
  RunResult first = RunOf({}, 1000, 0.9);  // 20 steps in 20 s
  RunResult second = RunOf({}, 500, 0.9);  // in 40 s
  EXPECT_FALSE(PredictionOf({At({}), "", {first}}));
  first.predicted_step_s = 1.25;
  second.predicted_step_s = 2.05;
  const auto prediction = PredictionOf({At({}), "", {first, second}});
  ASSERT_TRUE(prediction);
  EXPECT_DOUBLE_EQ(prediction->predicted_s, 1.65);
  EXPECT_DOUBLE_EQ(prediction->measured_s, 1.5);
  EXPECT_NEAR(prediction->error(), 0.1, 1e-12);
  second.predicted_step_s.reset();
  EXPECT_FALSE(PredictionOf({At({}), "", {first, second}}));
}

}  // namespace
}  // namespace psring
