#include "lab/page/format.h"

#include <gtest/gtest.h>

namespace psring {
namespace {

TEST(Format, Numbers) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999.6), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(200 << 20), "200 MiB");
  EXPECT_EQ(FormatPercent(0.9714), "97.14%");
  EXPECT_EQ(FormatSeconds(0.00123), "1.23 ms");
  EXPECT_EQ(FormatSeconds(0.2154), "215 ms");
  EXPECT_EQ(FormatSeconds(0.9996), "1.00 s");
  EXPECT_EQ(FormatSeconds(9.996), "10.0 s");
  EXPECT_EQ(FormatSeconds(59.94), "59.9 s");
  EXPECT_EQ(FormatSeconds(59.96), "1:00 min");
  EXPECT_EQ(FormatSeconds(125), "2:05 min");
  EXPECT_EQ(FormatTimes(1.333), "1.33");
  EXPECT_EQ(FormatTimes(13.33), "13.3");
}

}  // namespace
}  // namespace psring
