#include "lab/study/way_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace psring {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST(ParseWays, UnderstandsTheFourWays) {
  const auto specs = ParseWays("ps-bsp,ps-ssp:3,ps-async,ring");
  ASSERT_TRUE(specs.ok()) << specs.status();
  ASSERT_THAT(*specs, SizeIs(4));
  EXPECT_EQ((*specs)[0].sync, "bsp");
  EXPECT_EQ((*specs)[1].sync, "ssp");
  EXPECT_EQ((*specs)[1].staleness, 3);
  EXPECT_EQ((*specs)[1].name, "ps-ssp:3");
  EXPECT_EQ((*specs)[2].sync, "async");
  EXPECT_EQ((*specs)[3].mode, "ring");
}

TEST(ParseWays, SeveralStalenessesMayBeCompared) {
  EXPECT_TRUE(ParseWays("ps-ssp:0,ps-ssp:8").ok());
}

TEST(ParseWays, WhatIsNoWayIsNamedWithWhatIsAllowed) {
  for (const char* wrong : {"", "star", "ps", "ps-ssp", "ps-ssp:", "ps-ssp:x",
                            "ps-ssp:-1", "ps-ssp:9999999", "RING"}) {
    const auto specs = ParseWays(std::string("ps-bsp,") + wrong);
    ASSERT_FALSE(specs.ok()) << wrong;
    const std::string message(specs.status().message());
    EXPECT_THAT(message, HasSubstr("--modes: \"" + std::string(wrong) + "\""));
    EXPECT_THAT(message, HasSubstr("ps-ssp:K (K from 0 to"));
  }
}

TEST(ParseWays, AWayMayCarryFlagsOfItsWorkers) {
  const auto specs = ParseWays("ps-bsp,ps-bsp+backup-workers=1+lr=0.1");
  ASSERT_TRUE(specs.ok()) << specs.status();
  EXPECT_EQ((*specs)[1].name, "ps-bsp+backup-workers=1+lr=0.1");
  EXPECT_EQ((*specs)[1].sync, "bsp");
  EXPECT_THAT((*specs)[1].worker_flags,
              ElementsAre("--backup-workers=1", "--lr=0.1"));
  EXPECT_THAT(Explain((*specs)[1]), HasSubstr("--backup-workers=1 --lr=0.1"));
  EXPECT_FALSE(ParseWays("ring+").ok());
  EXPECT_FALSE(ParseWays("ring+--lr=1").ok());
}

TEST(ParseWays, AWayComesOnce) {
  const auto specs = ParseWays("ring,ps-bsp,ring");
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
