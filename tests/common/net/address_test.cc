#include "common/net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ParseHostPort, ReadsNamesAddressesAndBracketedIpv6) {
  auto name = ParseHostPort("hostA:7000");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->host, "hostA");
  EXPECT_EQ(name->port, 7000);
  auto v6 = ParseHostPort("[::1]:0");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(ToString(*v6), "[::1]:0");
}

TEST(ParseHostPort, SaysWhatIsWrongWithAnythingElse) {
  for (const char* text : {"", "host", ":7000", "host:", "host:x", "host:-1",
                           "host:65536", "::1:7000", "host:7 0"}) {
    auto result = ParseHostPort(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(text));
  }
}

// It would be printed as another one.
TEST(ParseHostPort, RefusesAHostThatIsNone) {
  for (const char* text : {"[[a]]:1", "[]:1", "a b:1", "a\n:1", "a:+1"}) {
    EXPECT_FALSE(ParseHostPort(text).ok()) << text;
  }
}

TEST(ParsePortRange, TakesTwoPortsInOrderAndNothingElse) {
  const auto ports = ParsePortRange("41000-41099");
  ASSERT_TRUE(ports.ok());
  EXPECT_EQ(ports->first, 41000);
  EXPECT_EQ(ports->last, 41099);
  EXPECT_EQ(ParsePortRange("")->first, 0);
  for (const char* text :
       {"41000", "41099-41000", "0-9", "1-65536", "a-b", "1-2-3", "-", "-5"}) {
    const auto wrong = ParsePortRange(text);
    ASSERT_FALSE(wrong.ok()) << text;
    EXPECT_THAT(std::string(wrong.status().message()),
                HasSubstr(absl::StrCat("'", text, "'")));
  }
}

TEST(ChooseAdvertised, PrefersWhatWasAskedFor) {
  auto explicit_address = ChooseAdvertised({.advertise = "127.0.0.3",
                                            .interface = "lo",
                                            .coordinator_host = "127.0.0.1"});
  ASSERT_TRUE(explicit_address.ok());
  EXPECT_EQ(explicit_address->address, "127.0.0.3");
  auto interface = ChooseAdvertised(
      {.advertise = "", .interface = "lo", .coordinator_host = ""});
  ASSERT_TRUE(interface.ok());
  EXPECT_TRUE(IsLoopback(interface->address));
}

TEST(ChooseAdvertised, OtherwiseTakesTheRouteToTheCoordinator) {
  auto chosen = ChooseAdvertised(
      {.advertise = "", .interface = "", .coordinator_host = "127.0.0.1"});
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->address, "127.0.0.1");
  EXPECT_EQ(chosen->reason, "the route to 127.0.0.1");
}

// There is a route, but no socket to ask for it.
TEST(ChooseAdvertised, SaysWhichLimitKeepsItFromTheRoute) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto status =
      ChooseAdvertised({.coordinator_host = "127.0.0.1"}).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.message(),
            "cannot look for the route to host '127.0.0.1': Too many open "
            "files. Raise the limit of open files (ulimit -n)");
}

TEST(ChooseAdvertised, NamesAnUnknownInterfaceAndTheKnownOnes) {
  auto chosen = ChooseAdvertised(
      {.advertise = "", .interface = "nosuch0", .coordinator_host = ""});
  ASSERT_FALSE(chosen.ok());
  EXPECT_THAT(std::string(chosen.status().message()), HasSubstr("nosuch0"));
  EXPECT_THAT(std::string(chosen.status().message()), HasSubstr("lo"));
}

TEST(ChooseAdvertised, AllAddressesAreNoneThatOthersReach) {
  for (const char* all : {"0.0.0.0", "::"}) {
    const auto chosen = ChooseAdvertised({.coordinator_host = all});
    EXPECT_TRUE(absl::IsInvalidArgument(chosen.status())) << all;
    EXPECT_THAT(std::string(chosen.status().message()), HasSubstr(all));
    EXPECT_TRUE(
        ChooseAdvertised({.advertise = "127.0.0.3", .coordinator_host = all})
            .ok());
  }
}

TEST(ChooseAdvertised, RefusesAnAddressThatTheHostDoesNotHave) {
  const auto status = ChooseAdvertised({.advertise = "192.0.2.1"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--advertise"), HasSubstr("192.0.2.1 is no")));
}

TEST(IsNumericAddress, TakesNoTextBehindAnAddress) {
  for (const char* address : {"10.0.0.1", "::1", "fe80::1%eth0", "fe80::1%2"}) {
    EXPECT_TRUE(IsNumericAddress(address)) << address;
  }
  for (const char* text :
       {"", "hostA", "10.0.0.1%eth0", "10.0.0.1%\x1b[2J", "fe80::1%",
        "fe80::1%\x1b[2J", "fe80::1%eth0%eth1", "fe80::1%sixteen-bytes-xy"}) {
    EXPECT_FALSE(IsNumericAddress(text)) << text;
  }
}

TEST(Resolve, NamesAHostThatNobodyKnows) {
  auto result = Resolve("no-such-host.invalid");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace psring
