#include "ring/rank_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kSegment = kSegmentElements;

// Rank 1's part of an allreduce of three slices of two segments each: slice 0
// starts here, slice 1 ends here, slice 2 comes by.
class RankScheduleTest : public ::testing::Test {
 protected:
  RankScheduleTest()
      : routes_(AllReduceRoutes(SingleNodes(3), 3, 3 * kSegment + 3 * 16)),
        schedule_(routes_, 1) {}

  // Takes a segment if it is due.
  bool Take(int route, int visit, int from, Range segment) {
    RankVisit* const due = schedule_.Due(route, visit, from, segment);
    if (due != nullptr) schedule_.Take(*due, segment);
    return due != nullptr;
  }

  // All segments of a route that come to rank 1 at `visit`.
  void TakeAll(int route, int visit, int from) {
    const Range range = routes_[route].range;
    for (int64_t at = range.begin; at < range.end;) {
      const Range segment = SegmentAt(range, at);
      EXPECT_TRUE(Take(route, visit, from, segment)) << route << " " << visit;
      at = segment.end;
    }
  }

  const std::vector<Route> routes_;
  RankSchedule schedule_;
};

TEST_F(RankScheduleTest, StartsTheSliceOfTheRankBefore) {
  EXPECT_THAT(schedule_.starts(), ElementsAre(0));
}

// Slice c visits c+1, c+2, c, c+1, c+2.
TEST_F(RankScheduleTest, IsCompleteWhenEveryVisitHasItsSegments) {
  TakeAll(0, 3, 0);
  TakeAll(1, 2, 0);
  TakeAll(2, 1, 0);
  EXPECT_FALSE(schedule_.complete());
  EXPECT_EQ(schedule_.awaited(), 0);
  TakeAll(2, 4, 0);
  EXPECT_TRUE(schedule_.complete());
  EXPECT_EQ(schedule_.awaited(), -1);
}

TEST_F(RankScheduleTest, SegmentsAreDueInTheirOrderOnce) {
  const Range slice = routes_[1].range;
  const Range first = SegmentAt(slice, slice.begin);
  const Range second = SegmentAt(slice, first.end);
  EXPECT_FALSE(Take(1, 2, 0, second));
  EXPECT_TRUE(Take(1, 2, 0, first));
  EXPECT_FALSE(Take(1, 2, 0, first));
  EXPECT_TRUE(Take(1, 2, 0, second));
  EXPECT_FALSE(Take(1, 2, 0, {slice.end, slice.end}));
}

TEST_F(RankScheduleTest, WhatIsNobodysTurnIsNotDue) {
  const Range slice = routes_[1].range;
  const Range first = SegmentAt(slice, slice.begin);
  EXPECT_FALSE(Take(1, 2, 2, first));   // of another rank
  EXPECT_FALSE(Take(1, 1, 0, first));   // a visit elsewhere
  EXPECT_FALSE(Take(1, 99, 0, first));  // no visit
  // Where slice 0 starts, from no rank.
  EXPECT_FALSE(Take(0, 0, -1, SegmentAt(routes_[0].range, 0)));
  EXPECT_FALSE(Take(99, 2, 0, first));  // no route
  EXPECT_FALSE(Take(-1, -1, 0, first));
  EXPECT_FALSE(Take(1, 2, 0, {first.begin, first.end - 1}));
  EXPECT_FALSE(Take(1, 2, 0, {first.begin, slice.end}));
  EXPECT_TRUE(Take(1, 2, 0, first));
}

TEST_F(RankScheduleTest, ResetForgetsWhatHasCome) {
  TakeAll(1, 2, 0);
  schedule_.Reset();
  TakeAll(0, 3, 0);
  TakeAll(2, 1, 0);
  TakeAll(2, 4, 0);
  EXPECT_FALSE(schedule_.complete());
  TakeAll(1, 2, 0);
  EXPECT_TRUE(schedule_.complete());
}

TEST(RankSchedule, ARouteThatWaitsDoesNotStart) {
  const RankSchedule schedule(DirectRoutes(3, 3000, WayBack::kRound), 0);
  // Rank 0's values of slices 2 and 1, but not yet the sum of slice 0.
  ASSERT_EQ(schedule.starts().size(), 2u);
  for (const int start : schedule.starts()) {
    EXPECT_TRUE(schedule.visits()[start].apart);
  }
  ASSERT_EQ(schedule.waiting().size(), 1u);
  EXPECT_EQ(schedule.visits()[schedule.waiting()[0]].route, 3 * 2 + 0);
}

// Each slice comes by twice, but to where it starts and where it ends.
TEST(RankSchedule, KeepsWhatConcernsTheRankAlone) {
  const RankSchedule schedule(AllReduceRoutes(SingleNodes(500), 500, 5000), 7);
  EXPECT_EQ(schedule.visits().size(), 2u * 500 - 1);
  for (const RankVisit& visit : schedule.visits()) {
    EXPECT_EQ(visit.here.agent, 7);
    EXPECT_EQ(visit.from, visit.visit == 0 ? -1 : 6);
    const bool last = visit.visit == 2 * 500 - 2;
    EXPECT_EQ(visit.to, last ? -1 : 8);
  }
}

TEST(RankSchedule, WithoutElementsNothingIsMissing) {
  for (int n : {1, 3}) {
    const RankSchedule schedule(AllReduceRoutes(SingleNodes(n), n, 0), 0);
    EXPECT_TRUE(schedule.complete());
    EXPECT_EQ(schedule.awaited(), -1);
  }
}

}  // namespace
}  // namespace psring
