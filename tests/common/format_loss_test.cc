#include "common/format_loss.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

TEST(FormatLoss, InFourDecimalsUnlessItIsSmall) {
  EXPECT_EQ(FormatLoss(2.30259), "2.3026");
  EXPECT_EQ(FormatLoss(0.01), "0.0100");
  EXPECT_EQ(FormatLoss(0.003456), "0.00346");
  EXPECT_EQ(FormatLoss(3.1279e-5), "3.13e-05");
  EXPECT_EQ(FormatLoss(-3.1279e-5), "-3.13e-05");
  EXPECT_EQ(FormatLoss(0), "0.0000");
}

}  // namespace
}  // namespace psring
