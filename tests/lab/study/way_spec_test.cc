#include "lab/study/way_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/optim/sync_policy.h"

namespace psring {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

WaySpec WayOf(const std::string& text) { return ParseWays(text)->front(); }

TEST(ParseWays, UnderstandsTheFourWays) {
  const auto specs = ParseWays("ps-bsp,ps-ssp:3,ps-async,ring");
  ASSERT_TRUE(specs.ok()) << specs.status();
  ASSERT_THAT(*specs, SizeIs(4));
  EXPECT_THAT((*specs)[0].Flags(), ElementsAre("--sync=bsp"));
  EXPECT_THAT((*specs)[1].Flags(), ElementsAre("--sync=ssp", "--staleness=3"));
  EXPECT_EQ((*specs)[1].name, "ps-ssp:3");
  EXPECT_THAT((*specs)[2].Flags(), ElementsAre("--sync=async"));
  EXPECT_TRUE((*specs)[2].has_servers());
  EXPECT_THAT((*specs)[3].Flags(), IsEmpty());
  EXPECT_FALSE((*specs)[3].has_servers());
}

TEST(ParseWays, EveryPolicyIsAWay) {
  for (const SyncPolicy& policy : SyncPolicies()) {
    const bool bound = policy.lead == SyncPolicy::Lead::kStaleness;
    const std::string name =
        absl::StrCat("ps-", policy.name, bound ? ":7" : "");
    const auto specs = ParseWays(name);
    ASSERT_TRUE(specs.ok()) << specs.status();
    EXPECT_EQ((*specs)[0].policy, &policy);
    EXPECT_EQ((*specs)[0].staleness, bound ? 7 : 0);
    EXPECT_EQ((*specs)[0].synchronous(), policy.barrier);
    EXPECT_THAT(WaysHelp(), HasSubstr(absl::StrCat("ps-", policy.name)));
  }
}

TEST(AllWays, AreEveryPolicyAndTheRing) {
  const auto specs = ParseWays(AllWays());
  ASSERT_TRUE(specs.ok()) << specs.status();
  EXPECT_THAT(*specs, SizeIs(SyncPolicies().size() + 1));
  EXPECT_FALSE(specs->back().has_servers());
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
  EXPECT_THAT((*specs)[1].Flags(),
              ElementsAre("--sync=bsp", "--backup-workers=1", "--lr=0.1"));
  EXPECT_FALSE((*specs)[1].plain());
  EXPECT_THAT(Explain((*specs)[1]), HasSubstr("--backup-workers=1 --lr=0.1"));
  EXPECT_FALSE(ParseWays("ring+").ok());
  EXPECT_FALSE(ParseWays("ring+--lr=1").ok());
  EXPECT_THAT(std::string(ParseWays("ring+lr=1+lr=2").status().message()),
              HasSubstr("has --lr twice"));
}

TEST(ParseWays, AWayComesOnce) {
  const auto specs = ParseWays("ring,ps-bsp,ring");
  ASSERT_FALSE(specs.ok());
  EXPECT_THAT(std::string(specs.status().message()),
              HasSubstr("ring comes twice"));
}

TEST(Explain, SaysHowFarAheadAWorkerMayRun) {
  EXPECT_THAT(Explain(WayOf("ps-ssp:3")), HasSubstr("3 steps ahead"));
  EXPECT_THAT(Explain(WayOf("ps-ssp:1")), HasSubstr("1 step ahead"));
  EXPECT_THAT(Explain(WayOf("ring")), Not(HasSubstr("0")));
}

}  // namespace
}  // namespace psring
