// `psring top` as a program, without a job: tests/python/test_page.py has some.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/testing/deaf_port.h"
#include "tests/testing/process.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

TEST(Top, AWrongAddressIsWrongUsage) {
  const Ran ran = RunProcess({PsringBinary(), "top", "nowhere"}, Soon());
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.output, HasSubstr("HOST:PORT"));
}

TEST(Top, AKeyThatOthersReadIsNotWrongUsage) {
  const std::string key = testing::TestDirectory() + "/key";
  ASSERT_EQ(
      RunProcess({PsringBinary(), "keygen", "--key-file=" + key}, Soon()).code,
      0);
  std::filesystem::permissions(key, std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  const Ran ran = RunProcess(
      {PsringBinary(), "top", "--key-file=" + key, "127.0.0.1:7000"}, Soon());
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("chmod"));
}

// Of a coordinator that never answers.
TEST(Top, CtrlCSaysThatItIsInterrupted) {
  const SilentPort coordinator;
  auto top = Process::Start(
      {PsringBinary(), "top", "--once", "--insecure", coordinator.address()});
  ASSERT_TRUE(top.ok()) << top.status();
  const int connection = coordinator.Accept();
  top->Signal(SIGINT);
  EXPECT_EQ(top->Wait(Soon()), 128 + SIGINT);
  EXPECT_EQ(top->Output(), "psring top: interrupted\n");
  close(connection);
}

}  // namespace
}  // namespace psring
