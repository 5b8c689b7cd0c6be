#include "common/net/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Secret, IsTheSameAfterItsText) {
  const Secret secret = Secret::Random();
  const auto again = Secret::FromText(absl::StrCat(secret.ToText(), "\n"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->bytes().view(), secret.bytes().view());
  EXPECT_NE(Secret::Random().ToText(), secret.ToText());
}

TEST(Secret, OtherTextIsRefusedAndNotRepeated) {
  const std::string text = Secret::Random().ToText();
  const std::string broken[] = {"",
                                "psring-key-1:",
                                text.substr(1),
                                text.substr(0, text.size() - 1),
                                text + "00",
                                text.substr(0, text.size() - 1) + "g",
                                "psring-key-2" + text.substr(12)};
  for (const std::string& bytes : broken) {
    const auto secret = Secret::FromText(bytes);
    ASSERT_EQ(secret.status().code(), absl::StatusCode::kInvalidArgument)
        << bytes;
    EXPECT_THAT(std::string(secret.status().message()),
                HasSubstr("psring keygen"));
    EXPECT_THAT(std::string(secret.status().message()),
                Not(HasSubstr(text.substr(20, 40))));
  }
}

// Both ends make them on different hosts, and of different builds.
TEST(Pairs, AreThoseOfTheSecretForEver) {
  const Secret secret = *Secret::FromText(
      absl::StrCat("psring-key-1:", "000102030405060708090a0b0c0d0e0f",
                   "101112131415161718191a1b1c1d1e1f"));
  const KeyPair coordinator = CoordinatorPair(secret);
  const KeyPair member = MemberPair(secret);
  EXPECT_EQ(coordinator.secret_key.view(),
            CoordinatorPair(secret).secret_key.view());
  EXPECT_NE(coordinator.public_key.view(), member.public_key.view());
  EXPECT_NE(member.public_key.view(),
            MemberPair(Secret::Random()).public_key.view());
  EXPECT_NE(RandomPair().secret_key.view(), RandomPair().secret_key.view());
}

}  // namespace
}  // namespace psring
