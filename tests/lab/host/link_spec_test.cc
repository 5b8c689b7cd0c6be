#include "lab/host/link_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LinkSpec, OneRateIsEveryHosts) {
  const auto spec = ParseLink("1gbit", 2);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(spec->RatesOf(2, 1), Each(1e9));
}

TEST(LinkSpec, OfAWorkerLeavesTheOthersFast) {
  const auto spec = ParseLink("worker:1:100mbit", 3);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const double fast = LinkSpec::kFastBitsPerS;
  EXPECT_THAT(spec->RatesOf(3, 1), ElementsAre(fast, 1e8, fast, fast));
}

TEST(LinkSpec, NamesWhatItDoesNotUnderstand) {
  for (const char* text : {"", "fast", "worker:1", "worker:x:1gbit",
                           "host:1:1gbit", "worker:-1:1gbit"}) {
    EXPECT_THAT(std::string(ParseLink(text, 2).status().message()),
                AllOf(HasSubstr("--link"), HasSubstr("worker:RANK:RATE")))
        << text;
  }
  EXPECT_THAT(std::string(ParseLink("worker:2:1gbit", 2).status().message()),
              HasSubstr("no worker 2 among 2"));
}

}  // namespace
}  // namespace psring
