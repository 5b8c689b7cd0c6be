#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class KeygenTest : public ::testing::Test {
 protected:
  Ran Keygen(std::vector<std::string> flags) const {
    flags.insert(flags.begin(), {PsringBinary(), "keygen"});
    return RunProcess(flags, Soon(),
                      ProcessOptions{.cwd = "",
                                     .env = {{"XDG_CONFIG_HOME", config_},
                                             {"PSRING_KEY_FILE", ""}}});
  }

  const std::string config_ = testing::TestDirectory();
  const std::string path_ = absl::StrCat(config_, "/psring/key");
};

TEST_F(KeygenTest, WritesAKeyThatOnlyItsOwnerReads) {
  const Ran ran = Keygen({});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr(path_));
  struct stat about = {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
}

TEST_F(KeygenTest, ReplacesAKeyOnlyByForce) {
  ASSERT_EQ(Keygen({}).code, 0);
  const std::string first = testing::ReadFile(path_);
  const Ran again = Keygen({});
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.output,
              AllOf(HasSubstr(path_), HasSubstr("keygen --print | ssh HOST"),
                    HasSubstr("--force")));
  EXPECT_EQ(testing::ReadFile(path_), first);
  EXPECT_EQ(Keygen({"--force"}).code, 0);
  EXPECT_NE(testing::ReadFile(path_), first);
}

TEST_F(KeygenTest, AFolderIsNoKey) {
  const std::string flag = "--key-file=" + config_;
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{flag}, {flag, "--force"}}) {
    const Ran ran = Keygen(flags);
    EXPECT_EQ(ran.code, 1);
    EXPECT_THAT(ran.output, HasSubstr(config_ + " is a folder"));
  }
}

// psring keygen --print | ssh B psring keygen --stdin
TEST_F(KeygenTest, WhatIsPrintedIsTheKeyElsewhere) {
  EXPECT_THAT(Keygen({"--print"}).output,
              HasSubstr(" makes one, and with --stdin"));
  ASSERT_EQ(Keygen({}).code, 0);
  const std::string there = absl::StrCat(config_, "/there/key");
  const Ran ran = RunProcess(
      {"/bin/sh", "-c",
       absl::StrCat(PsringBinary(), " keygen --key-file=", path_, " --print | ",
                    PsringBinary(), " keygen --stdin --key-file=", there)},
      Soon());
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(testing::ReadFile(there), testing::ReadFile(path_));
  const auto copy_again = [&] {
    return RunProcess({"/bin/sh", "-c",
                       absl::StrCat(PsringBinary(), " keygen --stdin < ", path_,
                                    " --key-file=", there)},
                      Soon());
  };
  EXPECT_EQ(copy_again().code, 0) << "where it is already";
  ASSERT_EQ(Keygen({"--force"}).code, 0);
  EXPECT_EQ(copy_again().code, 1) << "over another one";
}

TEST_F(KeygenTest, AKeyThatCannotBePrintedIsAnError) {
  ASSERT_EQ(Keygen({}).code, 0);
  const Ran ran = RunProcess(
      {"/bin/sh", "-c",
       absl::StrCat(PsringBinary(), " keygen --print --key-file=", path_,
                    " > /dev/full")},
      Soon());
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("cannot write the key"));
}

TEST_F(KeygenTest, TakesNothingElseForAKey) {
  const std::string without_end = "tr '\\0' x < /dev/zero";
  for (const std::string& other : {std::string("echo hello"), without_end}) {
    const Ran ran =
        RunProcess({"/bin/sh", "-c",
                    absl::StrCat(other, " | ", PsringBinary(),
                                 " keygen --stdin", " --key-file=", path_)},
                   Soon());
    EXPECT_EQ(ran.code, 1) << other;
    EXPECT_THAT(ran.output, HasSubstr("stdin: not a key of psring")) << other;
    EXPECT_NE(access(path_.c_str(), F_OK), 0);
  }
  EXPECT_EQ(Keygen({"--print", "--force"}).code, 2);
}

}  // namespace
}  // namespace psring
