#include "common/counted.h"

#include <gtest/gtest.h>

#include <numeric>

namespace psring {
namespace {

TEST(Counted, OneThingIsSingular) {
  EXPECT_EQ(Counted(1, "server"), "1 server");
  EXPECT_EQ(Counted(0, "server"), "0 servers");
  EXPECT_EQ(Counted(21, "worker"), "21 workers");
}

TEST(ShortList, NamesAllOrTheFirstAndHowManyMore) {
  const std::vector<std::string> none;
  EXPECT_EQ(ShortList(none), "");
  EXPECT_EQ(ShortList(std::vector<std::string>{"ps 0", "ps 1"}), "ps 0, ps 1");
  std::vector<int> ranks(8);
  std::iota(ranks.begin(), ranks.end(), 0);
  EXPECT_EQ(ShortList(ranks), "0, 1, 2, 3, 4, 5, 6, 7");
  ranks.push_back(8);
  EXPECT_EQ(ShortList(ranks), "0, 1, 2, 3, 4, 5, and 3 more");
}

}  // namespace
}  // namespace psring
