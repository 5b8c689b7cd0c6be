#include "lab/host/link_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr double kMegabit = 1e6;

double SecondsOf(int64_t bytes, double bits_per_s) {
  return static_cast<double>(bytes) * 8 / bits_per_s;
}

TEST(LinkShape, IsAheadOfItsRateByAboutHalfAMillisecond) {
  for (const double rate : {100 * kMegabit, 1000 * kMegabit, 5000 * kMegabit}) {
    EXPECT_NEAR(SecondsOf(ShapeOf(rate).burst_bytes, rate),
                LinkShape::kBurstSeconds, 1e-5);
  }
}

TEST(LinkShape, ALinkOf200MegabitsOrMoreCutsNoPacket) {
  EXPECT_EQ(ShapeOf(300 * kMegabit).packet_bytes, 65536);
  EXPECT_EQ(ShapeOf(5000 * kMegabit).packet_bytes, 65536);
}

TEST(LinkShape, PacketsOfSlowLinksAreShortButNotFrames) {
  const LinkShape slow = ShapeOf(25 * kMegabit);
  EXPECT_LT(SecondsOf(slow.packet_bytes, 25 * kMegabit), 6e-3);
  EXPECT_GE(slow.packet_bytes, 10 * 1500);
  EXPECT_GE(slow.burst_bytes, 2 * 1514);
  EXPECT_LT(SecondsOf(ShapeOf(100 * kMegabit).packet_bytes, 100 * kMegabit),
            3e-3);
}

TEST(LinkShape, AQueueHoldsManyPackets) {
  for (const double rate : {10 * kMegabit, 100 * kMegabit, 1000 * kMegabit}) {
    const LinkShape shape = ShapeOf(rate);
    EXPECT_GE(shape.queue_bytes, 4 * shape.packet_bytes);
  }
}

TEST(LinkShape, CommandsSayTheRateAndThePacket) {
  EXPECT_THAT(ShapeCommands(300 * kMegabit, "eth0"),
              AllOf(Contains(HasSubstr("dev eth0 gso_max_size 65536")),
                    Contains(HasSubstr("rate 300000000bit burst 20625 "))));
}

}  // namespace
}  // namespace psring
