#include "common/optim/sync_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  return std::string(ParseSync(text).status().message());
}

TEST(SyncPolicy, SaysHowFarAWorkerMayBeAhead) {
  const auto lead = [](const char* name) {
    return MaxLead(*FindSyncPolicy(name), 3);
  };
  EXPECT_EQ(lead("bsp"), 0);
  EXPECT_EQ(lead("ssp"), 3);
  EXPECT_EQ(lead("async"), std::numeric_limits<int64_t>::max());
}

TEST(SyncPolicy, OnlySspTakesABound) {
  EXPECT_EQ(SyncForms(), "bsp, ssp:K, async");
  EXPECT_STREQ(ParseSync("bsp")->policy->name, "bsp");
  EXPECT_EQ(ParseSync("ssp")->staleness, -1);
  for (const int64_t bound : {int64_t{0}, int64_t{3}, kMaxStaleness}) {
    const auto choice = ParseSync(absl::StrCat("ssp:", bound));
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_STREQ(choice->policy->name, "ssp");
    EXPECT_EQ(choice->staleness, bound);
  }
  for (const char* wrong : {"bsp:1", "async:1", "", "sp", "SSP:1"}) {
    EXPECT_THAT(ErrorOf(wrong),
                AllOf(HasSubstr(absl::StrCat("\"", wrong, "\"")),
                      HasSubstr("is not one of bsp, ssp:K, async")));
  }
  for (const char* wrong :
       {"ssp:", "ssp:-1", "ssp:x", "ssp:1000001", "ssp:99999999999999999999"}) {
    EXPECT_THAT(ErrorOf(wrong), HasSubstr("a number of steps from 0 to"));
  }
}

}  // namespace
}  // namespace psring
