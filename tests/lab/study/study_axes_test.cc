#include "lab/study/study_axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/lab/study/points.h"

namespace psring {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

using Texts = std::vector<std::vector<std::string>>;

// Flags that were given, by axis.
Texts Given(const std::vector<std::pair<std::string, std::string>>& flags) {
  Texts texts(Axes().size());
  for (const auto& [axis, text] : flags) {
    texts[AxisIndex(axis)].push_back(text);
  }
  return texts;
}

std::string ErrorOf(const std::string& axis, const std::string& text) {
  const auto values = ParseAxes(Given({{axis, text}}), 0);
  return values.ok() ? "" : std::string(values.status().message());
}

TEST(ParseAxes, WithoutFlagsItIsFourWaysOnce) {
  const auto values = ParseAxes(Given({}), 7);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT((*values)[AxisIndex("mode")], SizeIs(4));
  EXPECT_THAT((*values)[AxisIndex("slow")], ElementsAre("none"));
  EXPECT_THAT((*values)[AxisIndex("seed")], ElementsAre("7"));
}

TEST(ParseAxes, ANumberOfSeedsCountsFromTheFirst) {
  EXPECT_THAT((*ParseAxes(Given({{"seed", "3"}}), 5))[AxisIndex("seed")],
              ElementsAre("5", "6", "7"));
  EXPECT_THAT((*ParseAxes(Given({{"seed", "9,2"}}), 5))[AxisIndex("seed")],
              ElementsAre("9", "2"));
}

TEST(ParseAxes, ALinksCommasAreItsOwn) {
  const auto values =
      ParseAxes(Given({{"link", "none"}, {"link", "1gbit,2gbit"}}), 0);
  ASSERT_TRUE(values.ok());
  EXPECT_THAT((*values)[AxisIndex("link")], ElementsAre("none", "1gbit,2gbit"));
}

TEST(ParseAxes, NamesTheFlagAndThePartThatIsWrong) {
  EXPECT_THAT(ErrorOf("workers", "2,0"), HasSubstr("--workers: \"0\""));
  EXPECT_THAT(ErrorOf("workers", "2,02"), HasSubstr("--workers: \"02\""));
  EXPECT_THAT(ErrorOf("servers", "1,1"), HasSubstr("\"1\" comes twice"));
  EXPECT_THAT(ErrorOf("compress", "none,"), HasSubstr("--compress: \"\""));
  EXPECT_THAT(ErrorOf("seed", "0"), HasSubstr("--seeds: \"0\""));
  EXPECT_THAT(ErrorOf("seed", "1,-1"), HasSubstr("--seeds: \"-1\""));
  EXPECT_THAT(ErrorOf("mode", "ring,star"), HasSubstr("--modes: \"star\""));
}

TEST(ParseAxes, NumbersHaveBounds) {
  EXPECT_TRUE(ParseAxes(Given({{"workers", "1,1024"}}), 0).ok());
  EXPECT_THAT(ErrorOf("workers", "1025"), HasSubstr("from 1 to 1024"));
  EXPECT_TRUE(ParseAxes(Given({{"seed", "1000"}}), 0).ok());
  EXPECT_THAT(ErrorOf("seed", "1001"), HasSubstr("from 1 to 1000"));
  EXPECT_TRUE(ParseAxes(Given({{"seed", "0,1099511627776"}}), 0).ok());
  EXPECT_THAT(ErrorOf("seed", "0,1099511627777"),
              HasSubstr("from 0 to 1099511627776"));
}

TEST(AllRuns, EveryWayRunsWithASeedBeforeTheNextSeed) {
  const auto runs =
      AllRuns(*ParseAxes(Given({{"mode", "ps-bsp,ring"}, {"seed", "2"}}), 0));
  ASSERT_THAT(runs, SizeIs(4));
  EXPECT_THAT(ValueOf(runs[0], "mode"), "ps-bsp");
  EXPECT_THAT(ValueOf(runs[1], "mode"), "ring");
  EXPECT_THAT(ValueOf(runs[1], "seed"), "0");
  EXPECT_THAT(ValueOf(runs[2], "seed"), "1");
}

TEST(AllRuns, ARingRunsOnceForAllNumbersOfServers) {
  const auto runs = AllRuns(
      *ParseAxes(Given({{"mode", "ps-bsp,ring"}, {"servers", "1,2,4"}}), 0));
  ASSERT_THAT(runs, SizeIs(4));
  EXPECT_EQ(ValueOf(runs[1], "mode"), "ring");
  EXPECT_EQ(ValueOf(runs[1], "servers"), kAny);
}

TEST(PointLabel, SaysWhatVariesAndNothingElse) {
  const auto values =
      *ParseAxes(Given({{"mode", "ps-bsp,ring"}, {"workers", "1,4"}}), 0);
  EXPECT_EQ(PointLabel(At({{"mode", "ring"}, {"workers", "4"}}), values),
            "ring, 4 workers");
  EXPECT_EQ(
      PointLabel(At({{"mode", "ring"}, {"workers", "1"}}), values, "mode"),
      "1 worker");
}

TEST(SameBut, ASeedAndWhatDoesNotMatterAreNoDifference) {
  EXPECT_TRUE(SameBut(At({{"seed", "1"}}), At({{"seed", "2"}}), ""));
  EXPECT_TRUE(SameBut(At({{"servers", kAny}}), At({{"servers", "2"}}), ""));
  EXPECT_FALSE(SameBut(At({{"slow", "x"}}), At({}), "mode"));
  EXPECT_TRUE(SameBut(At({{"slow", "x"}}), At({}), "slow"));
}

}  // namespace
}  // namespace psring
