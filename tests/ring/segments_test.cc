#include "ring/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace psring {
namespace {

using ::testing::ElementsAre;

TEST(Segments, CoverTheSliceInOrder) {
  EXPECT_THAT(SegmentsOf({10, 20}, 4),
              ElementsAre(Range{10, 14}, Range{14, 18}, Range{18, 20}));
  EXPECT_TRUE(SegmentsOf({10, 10}, 4).empty());
}

TEST(Segments, WhatARankReceivesIsWhatTheOneBeforeSends) {
  for (int n = 2; n <= 8; ++n) {
    for (RingPhase phase : {RingPhase::kReduceScatter, RingPhase::kAllGather}) {
      for (int rank = 0; rank < n; ++rank) {
        const int previous = (rank + n - 1) % n;
        EXPECT_EQ(SliceReceived(phase, rank, n, 0),
                  FirstSliceSent(phase, previous, n));
        for (int hop = 1; hop < n - 1; ++hop) {
          EXPECT_EQ(SliceReceived(phase, rank, n, hop),
                    SliceReceived(phase, previous, n, hop - 1));
        }
      }
    }
  }
}

TEST(Segments, AReduceScatterEndsAtTheSlicesOwner) {
  for (int n = 2; n <= 8; ++n) {
    for (int rank = 0; rank < n; ++rank) {
      EXPECT_EQ(SliceReceived(RingPhase::kReduceScatter, rank, n, n - 2), rank);
    }
  }
}

}  // namespace
}  // namespace psring
