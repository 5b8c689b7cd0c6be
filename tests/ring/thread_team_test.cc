#include "ring/thread_team.h"

#include <gtest/gtest.h>

#include <vector>

namespace psring {
namespace {

TEST(ThreadTeam, EveryPartRunsOnceInEveryRound) {
  for (int size : {1, 2, 5}) {
    ThreadTeam team(size);
    EXPECT_EQ(team.size(), size);
    std::vector<int> runs(size, 0);
    for (int round = 1; round <= 500; ++round) {
      team.Run([&](int part) { ++runs[part]; });
      ASSERT_EQ(runs, std::vector<int>(size, round));
    }
  }
}

}  // namespace
}  // namespace psring
