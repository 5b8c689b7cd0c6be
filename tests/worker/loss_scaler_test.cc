#include "worker/loss_scaler.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

TEST(LossScaler, DoublesAfterTwoThousandGoodStepsInARow) {
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  for (int i = 0; i < 1999; ++i) scaler.Succeeded();
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.Succeeded();
  EXPECT_EQ(scaler.scale(), 131072);
}

TEST(LossScaler, HalvesWhenGradientsAreInfiniteAndCountsAnew) {
  LossScaler scaler;
  for (int i = 0; i < 1999; ++i) scaler.Succeeded();
  EXPECT_TRUE(scaler.Halve());
  EXPECT_EQ(scaler.scale(), 32768);
  for (int i = 0; i < 1999; ++i) scaler.Succeeded();
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.Succeeded();
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScaler, GivesUpWhereNoFactorIsSmallEnough) {
  LossScaler scaler;
  int halved = 0;
  while (scaler.Halve()) ++halved;
  EXPECT_EQ(halved, 16);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScaler, StopsGrowingWhereFloat32CountsNoFurther) {
  LossScaler scaler;
  for (int i = 0; i < 100 * 2000; ++i) scaler.Succeeded();
  EXPECT_EQ(scaler.scale(), LossScaler::kMost);
}

}  // namespace
}  // namespace psring
