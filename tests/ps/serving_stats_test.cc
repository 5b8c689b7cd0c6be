#include "ps/serving_stats.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

TEST(StalenessStats, CountsByWorkerWithAnOpenLastBin) {
  StalenessStats stats(2);
  for (int64_t staleness : {0, 3, 3, 62, 63, 64, 100000}) {
    stats.Record(1, staleness);
  }
  EXPECT_EQ(stats.histograms[0], std::vector<int64_t>(kStalenessBins, 0));
  EXPECT_EQ(stats.histograms[1][0], 1);
  EXPECT_EQ(stats.histograms[1][3], 2);
  EXPECT_EQ(stats.histograms[1][62], 1);
  EXPECT_EQ(stats.histograms[1][63], 3);
  EXPECT_EQ(stats.updates, 7);
  EXPECT_EQ(stats.max, 100000);
}

TEST(StalenessStats, OfSeveralShardsAddUp) {
  StalenessStats all, one(2), another(2);
  one.Record(0, 1);
  another.Record(0, 1);
  another.Record(1, 5);
  all.Add(one);
  all.Add(another);
  EXPECT_EQ(all.histograms[0][1], 2);
  EXPECT_EQ(all.histograms[1][5], 1);
  EXPECT_EQ(all.updates, 3);
  EXPECT_EQ(all.sum, 7);
  EXPECT_EQ(all.max, 5);
}

}  // namespace
}  // namespace psring
