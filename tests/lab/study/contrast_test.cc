#include "lab/study/contrast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/lab/study/points.h"

namespace psring {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// 100 steps that reach 90% after `seconds`, or 10% where that is negative.
RunResult RunOf(const AxisTexts& changes, double seconds) {
  RunResult run;
  run.point = At(changes);
  run.num_steps = 100;
  run.seconds = std::abs(seconds);
  run.test_accuracy = seconds > 0 ? 0.9 : 0.1;
  run.epochs = {{1, 100, run.seconds, 0, 0, run.test_accuracy, 0}};
  return run;
}

Variant Runs(std::vector<double> seconds) {
  Variant variant;
  for (const double s : seconds) variant.runs.push_back(RunOf({}, s));
  return variant;
}

bool TiedBySeconds(const Variant& a, const Variant& b,
                   size_t num_compared = 1) {
  const auto seconds = [](const RunResult& run) { return run.seconds; };
  return Tied({&a, SpreadOf(a, seconds)}, {&b, SpreadOf(b, seconds)},
              num_compared);
}

TEST(Tied, OneSeedEachIsTiedBelowAMargin) {
  EXPECT_TRUE(TiedBySeconds(Runs({10}), Runs({14})));
  EXPECT_FALSE(TiedBySeconds(Runs({10}), Runs({14.5})));
}

TEST(Tied, SeveralSeedsAreTiedWhereRangesMeetOrMeansAreClose) {
  EXPECT_TRUE(TiedBySeconds(Runs({10, 10}), Runs({10.1, 10.1})));
  EXPECT_FALSE(TiedBySeconds(Runs({10, 10}), Runs({10.6, 10.6})));
  EXPECT_TRUE(TiedBySeconds(Runs({9, 10, 11}), Runs({11, 30, 31})));
  // However seldom chance would do that.
  EXPECT_TRUE(
      TiedBySeconds(Runs({10, 10, 10, 10, 13}), Runs({13, 13, 13, 13, 13})));
  EXPECT_FALSE(
      TiedBySeconds(Runs({10, 10, 10, 10, 12.9}), Runs({13, 13, 13, 13, 13})));
}

// Of two seeds each, t is 4.30: 4.30 * sqrt((0.5 + 0.5) / 2) is 3.04.
TEST(Tied, RangesThatLieApartMayDoSoByChance) {
  EXPECT_TRUE(TiedBySeconds(Runs({9.5, 10.5}), Runs({12.5, 13.5})));
  EXPECT_FALSE(TiedBySeconds(Runs({9.5, 10.5}), Runs({12.6, 13.6})));
  // With more comparisons, one of them is apart by chance more often.
  EXPECT_TRUE(TiedBySeconds(Runs({9.5, 10.5}), Runs({12.6, 13.6}), 2));
  // With more seeds, the same difference tells more.
  EXPECT_FALSE(TiedBySeconds(Runs({9.5, 10.5, 10}), Runs({12.5, 13.5, 13}), 3));
  // One and several: those tell how far both scatter, by 1 degree of freedom.
  EXPECT_TRUE(TiedBySeconds(Runs({10}), Runs({12.5, 13.5})));
  EXPECT_FALSE(TiedBySeconds(Runs({10}), Runs({22.5, 23.5})));
}

// Ways that are the same, whose runs scatter by a tenth.
TEST(Tied, IdenticalWaysAreSeldomToldApart) {
  constexpr int kStudies = 2000;
  std::mt19937 random(1);
  std::normal_distribution<double> seconds(10, 1);
  for (const size_t seeds : {1, 2, 3}) {
    for (const size_t ways : {2, 4}) {
      int told_apart = 0;
      for (int study = 0; study < kStudies; ++study) {
        std::vector<Variant> variants;
        for (size_t way = 0; way < ways; ++way) {
          std::vector<double> drawn(seeds);
          for (double& s : drawn) s = seconds(random);
          variants.push_back(Runs(drawn));
        }
        const auto sum = [](const Variant& v) {
          return SpreadOf(v, [](const RunResult& r) { return r.seconds; }).mean;
        };
        const auto first = std::min_element(
            variants.begin(), variants.end(),
            [&](const auto& a, const auto& b) { return sum(a) < sum(b); });
        told_apart += std::any_of(
            variants.begin(), variants.end(), [&](const Variant& other) {
              return !TiedBySeconds(*first, other, ways - 1);
            });
      }
      // Of one seed, nothing corrects for the number of ways.
      EXPECT_LT(told_apart, kStudies * (seeds == 1 ? 0.15 : 0.09))
          << seeds << " seeds, " << ways << " ways";
    }
  }
}

class ContrastTest : public testing::Test {
 protected:
  ContrastTest()
      : comparison_(
            Compare(ValuesOf({{"mode", "ps-bsp,ring"}, {"workers", "2,4"}}),
                    {RunOf({}, 4), RunOf({{"mode", "ring"}}, 2),
                     RunOf({{"workers", "4"}}, 2.5),
                     RunOf({{"mode", "ring"}, {"workers", "4"}}, -1)},
                    {.target = 0.5})) {}

  const Comparison comparison_;
};

TEST_F(ContrastTest, RanksByTimeAndSetsApartWhoDidNotArrive) {
  const auto groups = GroupsAlong(comparison_, kWayAxis);
  ASSERT_THAT(groups, SizeIs(2));
  const Ranking first = RankBySeconds(comparison_, groups[0]);
  ASSERT_THAT(first.reached, SizeIs(2));
  EXPECT_EQ(ValueOf(first.reached[0].variant->point, kWayAxis), "ring");
  EXPECT_EQ(first.reached[1].spread.mean, 4);
  const Ranking second = RankBySeconds(comparison_, groups[1]);
  ASSERT_THAT(second.reached, SizeIs(1));
  ASSERT_THAT(second.unreached, SizeIs(1));
  EXPECT_EQ(ValueOf(second.unreached[0]->point, kWayAxis), "ring");
}

TEST_F(ContrastTest, TheBaseHasTheFirstValueOfTheAxisAndAllElseAlike) {
  for (const Variant& variant : comparison_.variants) {
    const Variant* base = BaseOf(comparison_, variant, "workers");
    if (ValueOf(variant.point, "workers") == "2") {
      EXPECT_EQ(base, nullptr) << variant.label;
      continue;
    }
    ASSERT_NE(base, nullptr) << variant.label;
    EXPECT_EQ(ValueOf(base->point, "workers"), "2");
    EXPECT_EQ(ValueOf(base->point, kWayAxis), ValueOf(variant.point, kWayAxis));
    const auto ratio = SecondsRatio(comparison_, *base, variant, 1);
    if (ValueOf(variant.point, kWayAxis) == "ring") {
      EXPECT_FALSE(ratio);  // it does not reach the target
    } else {
      ASSERT_TRUE(ratio);
      EXPECT_EQ(ratio->times, 0.625);
      EXPECT_FALSE(ratio->tied);
    }
  }
}

// Where an interrupted study lacks a run.
TEST(SecondsRatio, IsOfTheSeedsThatBothHave) {
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ring"}, {"workers", "2,4"}, {"seed", "2"}}),
              {RunOf({{"mode", "ring"}}, 4),
               RunOf({{"mode", "ring"}, {"seed", "1"}}, 40),
               RunOf({{"mode", "ring"}, {"workers", "4"}}, 2)},
              {.target = 0.5});
  const auto ratio = SecondsRatio(comparison, comparison.variants[0],
                                  comparison.variants[1], 1);
  ASSERT_TRUE(ratio);
  EXPECT_EQ(ratio->times, 0.5);
}

TEST_F(ContrastTest, StepsAreHeldAgainstTheFirstVariantOfTheGroup) {
  const auto groups = GroupsAlong(comparison_, kWayAxis);
  const auto contrasts = ContrastSteps(comparison_, groups[0]);
  ASSERT_THAT(contrasts, SizeIs(1));
  EXPECT_EQ(contrasts[0].speed.times, 2);
  EXPECT_FALSE(contrasts[0].speed.tied);
  EXPECT_EQ(contrasts[0].steps.times, 1);
  EXPECT_TRUE(contrasts[0].steps.tied);
  EXPECT_THAT(ContrastSteps(comparison_, groups[1]), IsEmpty());
}

// Of worker 0, as its seconds to the target, so that they multiply to it. In
// async another worker may take much longer.
TEST(ContrastSteps, AreOfTheWayToTheTarget) {
  RunResult async = RunOf({{"mode", "ps-async"}}, 10);
  async.epochs = {{1, 100, 2, 0, 0, 0.9, 0}};
  const Comparison comparison =
      Compare(ValuesOf({{"mode", "ps-bsp,ps-async"}}), {RunOf({}, 10), async},
              {.target = 0.5});
  const auto groups = GroupsAlong(comparison, kWayAxis);
  EXPECT_EQ(ContrastSteps(comparison, groups[0])[0].speed.times, 5);
}

TEST_F(ContrastTest, RanksByFinalAccuracyTheHighestFirst) {
  const auto groups = GroupsAlong(comparison_, kWayAxis);
  const std::vector<Rated> rated = RankByEnd(comparison_.goal, groups[1]);
  ASSERT_THAT(rated, SizeIs(2));
  EXPECT_EQ(rated[0].variant, groups[1].variants[0]);
  EXPECT_EQ(rated[0].spread.mean, 0.9);
  EXPECT_EQ(rated[1].spread.mean, 0.1);
  // Whatever their order in the group.
  const Group reversed{"", {groups[1].variants[1], groups[1].variants[0]}};
  EXPECT_EQ(RankByEnd(comparison_.goal, reversed)[0].variant,
            groups[1].variants[0]);
}

TEST_F(ContrastTest, ThePredictorsErrorsAreMedianAndWorst) {
  EXPECT_FALSE(ErrorsOfPredictions(comparison_));
  Comparison predicted = comparison_;
  const double errors[] = {0.1, -0.3, 0.2};  // of steps of 40, 20 and 25 ms
  for (size_t i = 0; i < 3; ++i) {
    RunResult& run = predicted.variants[i].runs[0];
    run.predicted_step_s = StepSeconds(run) * (1 + errors[i]);
  }
  const auto found = ErrorsOfPredictions(predicted);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->count, 3u);
  EXPECT_NEAR(found->median, 0.2, 1e-9);
  EXPECT_NEAR(found->worst, 0.3, 1e-9);
  EXPECT_EQ(found->worst_label, predicted.variants[1].label);
}

}  // namespace
}  // namespace psring
