#include "common/cluster/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Expand(absl::string_view list, int max = 100) {
  const auto hosts = ExpandNodeList(list, max);
  if (hosts.ok()) return *hosts;
  return {absl::StrCat("error: ", hosts.status().message())};
}

TEST(ExpandNodeList, ExpandsRangesListsPaddingPrefixesAndSuffixes) {
  EXPECT_THAT(Expand("n[1-2],m[03,05-06]"),
              ElementsAre("n1", "n2", "m03", "m05", "m06"));
  EXPECT_THAT(Expand("login-1.site_a"), ElementsAre("login-1.site_a"));
  EXPECT_THAT(Expand("a[1-2]b"), ElementsAre("a1b", "a2b"));
  EXPECT_THAT(
      Expand("r[1-2]n[08-10]x"),
      ElementsAre("r1n08x", "r1n09x", "r1n10x", "r2n08x", "r2n09x", "r2n10x"));
  EXPECT_THAT(Expand("n[099-100]"), ElementsAre("n099", "n100"));
  EXPECT_THAT(Expand("n[9-10]"), ElementsAre("n9", "n10"));
  EXPECT_THAT(Expand("a,b[1],c"), ElementsAre("a", "b1", "c"));
}

TEST(ExpandNodeList, StopsAtTheNamesThatWereAskedFor) {
  EXPECT_THAT(Expand("n[1-999999999]", 2), ElementsAre("n1", "n2"));
  EXPECT_THAT(Expand("n[1-999999999]m[1-999999999]", 2),
              ElementsAre("n1m1", "n1m2"));
  EXPECT_THAT(Expand("a,b,c", 2), ElementsAre("a", "b"));
  std::string doublings;
  for (int i = 0; i < 80; ++i) doublings += "[1-2]";
  EXPECT_EQ(Expand(doublings, 3).size(), 3u);
  EXPECT_THAT(Expand("n[1-1,2-999999999],m[1-999999999]", 3),
              ElementsAre("n1", "n2", "n3"));
}

TEST(ExpandNodeList, RefusesWhatIsNoListAlsoBehindTheNamesAskedFor) {
  for (const std::string list : {"",           ",",        "a,",
                                 "n[",         "n[1",      "n]",
                                 "n1]",        "n[]",      "n[1,]",
                                 "n[2-1]",     "n[1-2-3]", "n[-1]",
                                 "n[1-]",      "n[a-b]",   "n[[1]]",
                                 "n[ 1]",      "n[+1]",    "n[99999999999]",
                                 "n[000x133]", "a b",      "a;b",
                                 "tcp://a"}) {
    EXPECT_THAT(Expand(list), ElementsAre(HasSubstr("error: "))) << list;
    EXPECT_THAT(Expand("first," + list, 1), ElementsAre(HasSubstr("error: ")))
        << list;
  }
}

TEST(ExpandNodeList, RefusesNamesThatNoHostHas) {
  std::string brackets;
  for (int i = 0; i < 40000; ++i) brackets += "[1]";
  EXPECT_THAT(Expand(brackets), ElementsAre(HasSubstr("longer than 255")));
  EXPECT_THAT(Expand(std::string(100000, 'n')),
              ElementsAre(HasSubstr("longer than 255")));
  EXPECT_THAT(Expand("n[" + std::string(100000, '0') + "1-2]"),
              ElementsAre(HasSubstr("is not a range")));
}

}  // namespace
}  // namespace psring
