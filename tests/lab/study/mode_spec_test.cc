#include "lab/study/mode_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace psring {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST(ParseModes, UnderstandsTheFourWays) {
  const auto specs = ParseModes("ps-bsp,ps-ssp:3,ps-async,ring");
  ASSERT_TRUE(specs.ok()) << specs.status();
  ASSERT_THAT(*specs, SizeIs(4));
  EXPECT_EQ((*specs)[0].sync, "bsp");
  EXPECT_EQ((*specs)[1].sync, "ssp");
  EXPECT_EQ((*specs)[1].staleness, 3);
  EXPECT_EQ((*specs)[1].name, "ps-ssp:3");
  EXPECT_EQ((*specs)[2].sync, "async");
  EXPECT_EQ((*specs)[3].mode, "ring");
}

TEST(ParseModes, SeveralStalenessesMayBeCompared) {
  EXPECT_TRUE(ParseModes("ps-ssp:0,ps-ssp:8").ok());
}

TEST(ParseModes, WhatIsNoModeIsNamedWithWhatIsAllowed) {
  for (const char* wrong : {"", "star", "ps", "ps-ssp", "ps-ssp:", "ps-ssp:x",
                            "ps-ssp:-1", "ps-ssp:9999999", "RING"}) {
    const auto specs = ParseModes(std::string("ps-bsp,") + wrong);
    ASSERT_FALSE(specs.ok()) << wrong;
    const std::string message(specs.status().message());
    EXPECT_THAT(message, HasSubstr("--modes: \"" + std::string(wrong) + "\""));
    EXPECT_THAT(message, HasSubstr("ps-ssp:K (K from 0 to"));
  }
}

TEST(ParseModes, AModeMayCarryFlagsOfItsWorkers) {
  const auto specs = ParseModes("ps-bsp,ps-bsp+backup-workers=1+lr=0.1");
  ASSERT_TRUE(specs.ok()) << specs.status();
  EXPECT_EQ((*specs)[1].name, "ps-bsp+backup-workers=1+lr=0.1");
  EXPECT_EQ((*specs)[1].sync, "bsp");
  EXPECT_THAT((*specs)[1].worker_flags,
              ElementsAre("--backup-workers=1", "--lr=0.1"));
  EXPECT_THAT(Explain((*specs)[1]), HasSubstr("--backup-workers=1 --lr=0.1"));
  EXPECT_FALSE(ParseModes("ring+").ok());
  EXPECT_FALSE(ParseModes("ring+--lr=1").ok());
}

TEST(ParseModes, AModeComesOnce) {
  const auto specs = ParseModes("ring,ps-bsp,ring");
  ASSERT_FALSE(specs.ok());
  EXPECT_THAT(std::string(specs.status().message()),
              HasSubstr("ring comes twice"));
}

TEST(Explain, SaysHowFarAheadAWorkerMayRun) {
  EXPECT_THAT(Explain({"ps-ssp:3", "ps", "ssp", 3, {}}), HasSubstr("3 steps"));
  EXPECT_THAT(Explain({"ps-ssp:1", "ps", "ssp", 1, {}}), HasSubstr("1 step "));
  EXPECT_THAT(Explain({"ring", "ring", "", 0, {}}), Not(HasSubstr("0")));
}

}  // namespace
}  // namespace psring
