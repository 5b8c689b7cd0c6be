#include "tests/common/cluster/many_members.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

// What each of them gets alike is in the coordinator's memory once: with a copy
// for each, 512 members take 130 MiB.
TEST(ManyMembers, JoinMeetAndLeaveWithoutACopyForEach) {
  const auto cost = RunManyMembers(512);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_LT(cost->peak_memory_bytes, 80 << 20);
}

}  // namespace
}  // namespace psring
