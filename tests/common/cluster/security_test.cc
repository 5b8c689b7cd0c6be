#include "common/cluster/security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/net/key_file.h"
#include "common/net/keys.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SecurityTest : public ::testing::Test {
 protected:
  // A file with a new key.
  std::string File(const std::string& name) const {
    const std::string path = absl::StrCat(folder_, "/", name);
    EXPECT_EQ(WriteKeyFile(path, Secret::Random(), /*overwrite=*/true),
              absl::OkStatus());
    return path;
  }

  static std::string TextOf(const absl::StatusOr<Security>& security) {
    if (!security.ok()) return std::string(security.status().message());
    return security->secret.has_value() ? security->secret->ToText() : "none";
  }
  static std::string TextIn(const std::string& file) {
    return ReadKeyFile(file)->ToText();
  }

  const std::string folder_ = testing::TestDirectory();
};

TEST_F(SecurityTest, TakesTheKeyThatTheUserMeansMost) {
  const std::string flag = File("flag"), variable = File("variable");
  const std::string usual = File("psring/key");
  const Secret handed = Secret::Random();
  const auto descriptor = KeyDescriptor::Create(handed);
  Variables variables = {{"XDG_CONFIG_HOME", folder_}, {"HOME", "/nowhere"}};
  EXPECT_EQ(TextOf(FindSecurity({}, variables)), TextIn(usual));
  variables["PSRING_KEY_FD"] = absl::StrCat(descriptor->fd());
  EXPECT_EQ(TextOf(FindSecurity({}, variables)), handed.ToText());
  variables["PSRING_KEY_FILE"] = variable;
  EXPECT_EQ(TextOf(FindSecurity({}, variables)), TextIn(variable));
  EXPECT_EQ(TextOf(FindSecurity({.key_file = flag}, variables)), TextIn(flag));
  variables["PSRING_INSECURE"] = "1";
  EXPECT_EQ(TextOf(FindSecurity({.key_file = flag}, variables)), TextIn(flag));
  EXPECT_EQ(TextOf(FindSecurity({}, variables)), "none");
  EXPECT_TRUE(FindSecurity({}, variables)->insecure);
}

TEST_F(SecurityTest, NoKeyIsNoErrorUnlessOneIsRequired) {
  const Variables variables = {{"HOME", folder_}};
  EXPECT_EQ(TextOf(FindSecurity({}, variables)), "none");
  EXPECT_FALSE(FindSecurity({}, variables)->insecure);
  EXPECT_THAT(TextOf(FindSecurity({.require_encryption = true}, variables)),
              HasSubstr("psring keygen"));
}

TEST_F(SecurityTest, AKeyOfAFolderThatIsRemovedIsAnError) {
  File("key");
  const std::filesystem::path before = std::filesystem::current_path();
  const std::string removed = absl::StrCat(folder_, "/removed");
  std::filesystem::create_directory(removed);
  std::filesystem::current_path(removed);
  std::filesystem::remove(removed);
  EXPECT_THAT(TextOf(FindSecurity({.key_file = "../key"}, {})),
              HasSubstr("../key lies: No such file"));
  std::filesystem::current_path(before);
}

// A job without a key where the user has made one would be open to others.
TEST_F(SecurityTest, AKeyThatCannotBeReadIsAnError) {
  const Variables variables = {{"HOME", folder_}};
  const std::string config = absl::StrCat(folder_, "/.config/psring");
  std::filesystem::create_directories(config);
  EXPECT_EQ(TextOf(FindSecurity({}, variables)), "none");
  std::filesystem::create_symlink("/nowhere/key", config + "/key");
  EXPECT_THAT(TextOf(FindSecurity({}, variables)), HasSubstr(config + "/key"));
}

TEST_F(SecurityTest, WhatDoesNotFitTogetherIsAnError) {
  EXPECT_THAT(TextOf(FindSecurity({.key_file = "f", .insecure = true}, {})),
              HasSubstr("--insecure contradicts --key-file"));
  EXPECT_THAT(
      TextOf(NewSecurity({.insecure = true, .require_encryption = true}, {})),
      HasSubstr("--insecure contradicts --require-encryption"));
  const Variables both = {{"PSRING_INSECURE", "1"},
                          {"PSRING_REQUIRE_ENCRYPTION", "1"}};
  EXPECT_THAT(
      TextOf(FindSecurity({}, both)),
      HasSubstr("PSRING_INSECURE=1 contradicts PSRING_REQUIRE_ENCRYPTION=1"));
  EXPECT_TRUE(FindSecurity({.insecure = true}, both)->insecure);
  EXPECT_THAT(TextOf(FindSecurity({}, {{"PSRING_INSECURE", "yes"}})),
              HasSubstr("PSRING_INSECURE=yes"));
  EXPECT_THAT(TextOf(FindSecurity({}, {{"PSRING_KEY_FD", "x"}})),
              HasSubstr("PSRING_KEY_FD=x"));
  EXPECT_THAT(TextOf(FindSecurity({}, {{"PSRING_KEY_FD", "999"}})),
              HasSubstr("PSRING_KEY_FD=999"));
  EXPECT_THAT(TextOf(FindSecurity({.key_file = "/nowhere/key"}, {})),
              HasSubstr("/nowhere/key"));
}

TEST_F(SecurityTest, ACommandThatStartsAJobMakesItsKey) {
  const Variables variables = {{"XDG_CONFIG_HOME", folder_}};
  File("psring/key");
  const auto one = NewSecurity({}, variables);
  const auto two = NewSecurity({}, variables);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(TextOf(one), TextOf(two));
  EXPECT_NE(TextOf(one), TextIn(DefaultKeyPath(variables)));
  const std::string file = File("mine");
  EXPECT_EQ(TextOf(NewSecurity({.key_file = file}, variables)), TextIn(file));
  EXPECT_EQ(TextOf(NewSecurity({.insecure = true}, variables)), "none");
}

TEST_F(SecurityTest, KnowsWhereTheKeyLies) {
  EXPECT_EQ(DefaultKeyPath({{"XDG_CONFIG_HOME", "/c"}, {"HOME", "/h"}}),
            "/c/psring/key");
  EXPECT_EQ(DefaultKeyPath({{"XDG_CONFIG_HOME", "c"}, {"HOME", "/h"}}),
            "/h/.config/psring/key");
  EXPECT_EQ(DefaultKeyPath({}), "");
}

TEST_F(SecurityTest, BeyondLoopbackItTakesAKeyOrTheUsersWord) {
  Security none, insecure, keyed;
  insecure.insecure = true;
  keyed.secret = Secret::Random();
  EXPECT_EQ(CheckListening(none, "127.0.0.1"), absl::OkStatus());
  EXPECT_EQ(CheckListening(none, "::1"), absl::OkStatus());
  EXPECT_EQ(CheckListening(insecure, "10.0.0.1"), absl::OkStatus());
  EXPECT_EQ(CheckListening(keyed, "10.0.0.1"), absl::OkStatus());
  for (const char* address : {"10.0.0.1", "0.0.0.0", "fe80::1"}) {
    EXPECT_THAT(std::string(CheckListening(none, address).message()),
                AllOf(HasSubstr(address), HasSubstr("psring keygen"),
                      HasSubstr("--insecure")));
  }
}

}  // namespace
}  // namespace psring
