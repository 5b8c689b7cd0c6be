// `psring top` as a program, without a job: tests/python/test_page.py has some.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
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
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, any, size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, any, &size), 0);
  auto top =
      Process::Start({PsringBinary(), "top", "--once", "--insecure",
                      absl::StrCat("127.0.0.1:", ntohs(address.sin_port))});
  ASSERT_TRUE(top.ok()) << top.status();
  const int connection = accept(listener, nullptr, nullptr);
  top->Signal(SIGINT);
  EXPECT_EQ(top->Wait(Soon()), 128 + SIGINT);
  EXPECT_EQ(top->Output(), "psring top: interrupted\n");
  close(connection);
  close(listener);
}

}  // namespace
}  // namespace psring
