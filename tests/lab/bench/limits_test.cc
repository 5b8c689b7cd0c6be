#include "lab/bench/limits.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

TEST(CopySeconds, LeavesOutTheWaitForACore) {
  EXPECT_DOUBLE_EQ(CopySeconds(0.5, 1.0, 2, 4), 0.5);
  EXPECT_DOUBLE_EQ(CopySeconds(0.5, 0.9, 2, 4), 0.45);
  EXPECT_DOUBLE_EQ(CopySeconds(0.5, 0.8, 4, 2), 0.4);
  EXPECT_DOUBLE_EQ(CopySeconds(0.5, 1.8, 4, 2), 0.5);
}

TEST(MemoryLimit, OfAnAllReduceIsTheCopy) {
  EXPECT_DOUBLE_EQ(AllReduceMemoryLimit(0.5), 0.5);
}

TEST(MemoryLimit, OfAPushPullAddsTheServersOwnTraffic) {
  EXPECT_DOUBLE_EQ(PushPullMemoryLimit(0.5, 2, 0), 0.75);
  EXPECT_DOUBLE_EQ(PushPullMemoryLimit(0.5, 2, 1), 1.0);
  EXPECT_DOUBLE_EQ(PushPullMemoryLimit(0.4, 4, 0), 0.5);
}

TEST(LinkLoad, OfARing) {
  EXPECT_DOUBLE_EQ(AllReduceLinkLoad(2), 1.0);
  EXPECT_DOUBLE_EQ(AllReduceLinkLoad(4), 1.5);
}

TEST(LinkLoad, OfServersOfTheirOwnIsTheWorkersOrTheServers) {
  EXPECT_DOUBLE_EQ(PushPullLinkLoad(4, 1, Placement::kSeparate), 4.0);
  EXPECT_DOUBLE_EQ(PushPullLinkLoad(4, 2, Placement::kSeparate), 2.0);
  EXPECT_DOUBLE_EQ(PushPullLinkLoad(4, 8, Placement::kSeparate), 1.0);
}

TEST(LinkLoad, OfColocatedServersIsARings) {
  EXPECT_DOUBLE_EQ(PushPullLinkLoad(4, 4, Placement::kColocated), 1.5);
}

TEST(LinkLimit, IsTheLoadsTime) {
  EXPECT_DOUBLE_EQ(LinkLimit(1.5, 1'000'000, 1e9), 0.012);
}

}  // namespace
}  // namespace psring
