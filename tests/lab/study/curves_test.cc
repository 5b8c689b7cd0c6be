#include "lab/study/curves.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/lab/study/points.h"

namespace psring {
namespace {

RunResult RunOf(std::vector<EpochSample> epochs,
                std::vector<StepSample> steps) {
  RunResult run;
  run.point = At({});
  run.epochs = std::move(epochs);
  run.steps = std::move(steps);
  return run;
}

TEST(AccuracyBand, IsTheMeanAndTheRangeOfEachEvaluation) {
  const Variant variant = {
      At({}),
      "",
      {RunOf({{1, 10, 1.0, 0, 0.5, 0.6, 0}}, {}),
       RunOf({{1, 10, 3.0, 0, 0.7, 0.8, 0}, {2, 20, 6.0, 0, 0.1, 0.9, 0}},
             {})}};
  const auto band = AccuracyBand(variant);
  ASSERT_EQ(band.size(), 1u);  // as many as both have
  EXPECT_EQ(band[0].step, 10);
  EXPECT_EQ(band[0].seconds, 2);
  EXPECT_DOUBLE_EQ(band[0].value.mean, 0.7);
  EXPECT_EQ(band[0].value.min, 0.6);
  EXPECT_EQ(band[0].value.max, 0.8);
  EXPECT_DOUBLE_EQ(TestLossBand(variant)[0].value.mean, 0.6);
}

// A script may evaluate now the one and now the other.
TEST(AccuracyBand, LeavesOutEvaluationsThatTellNone) {
  const double nothing = std::nan("");
  const Variant variant = {At({}),
                           "",
                           {RunOf({{1, 10, 1.0, 0, 0.5, nothing, 0},
                                   {2, 20, 2.0, 0, nothing, 0.8, 0}},
                                  {})}};
  const auto band = AccuracyBand(variant);
  ASSERT_EQ(band.size(), 1u);
  EXPECT_EQ(band[0].step, 20);
  EXPECT_EQ(band[0].value.mean, 0.8);
  ASSERT_EQ(TestLossBand(variant).size(), 1u);
  EXPECT_EQ(TestLossBand(variant)[0].step, 10);
}

TEST(LossBand, ReadsEverySeedOffAtTheSameSteps) {
  const Variant variant = {
      At({}),
      "",
      {RunOf({}, {{1, 0.1, 3, 0}, {3, 0.3, 1, 0}, {9, 9, 1, 0}}),
       RunOf({}, {{1, 0.2, 5, 0}, {5, 1.0, 1, 0}})}};
  const auto band = LossBand(variant, 3);
  ASSERT_EQ(band.size(), 3u);
  EXPECT_EQ(band[0].step, 1);
  EXPECT_EQ(band[1].step, 3);
  EXPECT_EQ(band[2].step, 5);
  EXPECT_DOUBLE_EQ(band[1].value.min, 1);
  EXPECT_DOUBLE_EQ(band[1].value.max, 3);  // halfway from 5 to 1
  EXPECT_DOUBLE_EQ(band[1].value.mean, 2);
  EXPECT_DOUBLE_EQ(band[1].seconds, (0.3 + 0.6) / 2);
}

TEST(LossBand, IsThatOfEvaluationsWhereAScriptNotesNoOther) {
  const Variant variant = {
      At({}),
      "",
      {RunOf({{1, 10, 1.0, 2.5, 0.5, 0.8, 0}, {2, 20, 2.0, 1.5, 0.4, 0.9, 0}},
             {})}};
  const auto band = LossBand(variant, 50);
  ASSERT_EQ(band.size(), 2u);
  EXPECT_EQ(band[1].step, 20);
  EXPECT_EQ(band[1].value.mean, 1.5);
}

TEST(LossBand, LeavesOutWhatIsNoNumber) {
  EXPECT_TRUE(LossBand({At({}), "", {RunOf({}, {{1, 1, std::nan(""), 0}})}}, 3)
                  .empty());
  EXPECT_TRUE(LossBand({At({}), "", {}}, 3).empty());
}

}  // namespace
}  // namespace psring
