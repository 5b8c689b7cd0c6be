#include "lab/host/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace psring {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseSize, TakesDecimalUnits) {
  EXPECT_EQ(*ParseSize("1KB"), 1000);
  EXPECT_EQ(*ParseSize("100MB"), 100'000'000);
  EXPECT_EQ(*ParseSize("2.5 mb"), 2'500'000);
  EXPECT_EQ(*ParseSize("1GB"), 1'000'000'000);
  EXPECT_EQ(*ParseSize("400"), 400);
  EXPECT_EQ(*ParseSize("400B"), 400);
}

TEST(ParseSize, RoundsDownToWholeFloats) {
  EXPECT_EQ(*ParseSize("7"), 4);
  EXPECT_EQ(*ParseSize("0.01KB"), 8);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "KB", "x", "1XB", "-1KB", "0", "3", "1e9GB"}) {
    const auto size = ParseSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_THAT(std::string(size.status().message()), HasSubstr(text));
  }
}

TEST(ParseSizes, TakesAListAndNamesTheWrongPart) {
  EXPECT_THAT(*ParseSizes("1KB,1MB"), ElementsAre(1000, 1000000));
  EXPECT_THAT(std::string(ParseSizes("1KB,big").status().message()),
              HasSubstr("\"big\""));
}

TEST(ParseRate, TakesBitsASecond) {
  EXPECT_DOUBLE_EQ(*ParseRate("100mbit"), 1e8);
  EXPECT_DOUBLE_EQ(*ParseRate("2.5gbit"), 2.5e9);
  for (const char* text : {"", "1", "1GB", "0gbit", "-1gbit", "0.5mbit"}) {
    EXPECT_FALSE(ParseRate(text).ok()) << text;
  }
}

TEST(ParseNumbers, ChecksTheRange) {
  EXPECT_THAT(*ParseNumbers("2,4", 2, 8), ElementsAre(2, 4));
  EXPECT_FALSE(ParseNumbers("1", 2, 8).ok());
  EXPECT_FALSE(ParseNumbers("2,9", 2, 8).ok());
  EXPECT_FALSE(ParseNumbers("", 2, 8).ok());
}

TEST(Format, ChoosesTheUnit) {
  EXPECT_EQ(FormatSize(1000), "1 KB");
  EXPECT_EQ(FormatSize(25'600'000), "25.6 MB");
  EXPECT_EQ(FormatSize(400), "400 B");
  EXPECT_EQ(FormatTime(0.00001234), "12.3 us");
  EXPECT_EQ(FormatTime(0.00000005), "0.05 us");
  EXPECT_EQ(FormatTime(0.0012), "1.20 ms");
  EXPECT_EQ(FormatTime(75), "75.0 s");
  EXPECT_EQ(FormatBandwidth(1.25e9), "1.25 GB/s");
  EXPECT_EQ(FormatLinkRate(953e6), "953 Mbit/s");
}

}  // namespace
}  // namespace psring
