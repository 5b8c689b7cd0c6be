#include "common/try_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace psring {
namespace {

class TryWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    ASSERT_EQ(pipe(ends_), 0);
  }
  void TearDown() override {
    close(ends_[1]);
    if (ends_[0] >= 0) close(ends_[0]);
  }
  std::string Read(size_t size) {
    std::string text(size, '\0');
    text.resize(std::max<ssize_t>(read(ends_[0], text.data(), size), 0));
    return text;
  }

  int ends_[2] = {-1, -1};
};

TEST_F(TryWriterTest, WritesWhatAReaderThatHasStoppedWouldTake) {
  TryWriter writer(ends_[1]);
  EXPECT_EQ(writer.Write("a line\n"), 7);
  EXPECT_EQ(Read(100), "a line\n");
  const std::string much(1 << 20, 'x');
  const ssize_t taken = writer.Write(much);
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, 1 << 20);
  EXPECT_EQ(writer.Write("more"), 0);
  EXPECT_FALSE(writer.Await(absl::ZeroDuration()));
  Read(8192);
  EXPECT_TRUE(writer.Await(absl::ZeroDuration()));
  EXPECT_GT(writer.Write(much), 0);
  EXPECT_EQ(fcntl(ends_[1], F_GETFL) & O_NONBLOCK, 0) << "others share it";
}

TEST_F(TryWriterTest, SaysThatNobodyReads) {
  TryWriter writer(ends_[1]);
  EXPECT_EQ(writer.Write("x"), 1);
  close(std::exchange(ends_[0], -1));
  EXPECT_EQ(writer.Write("x"), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(TryWriterTest, FollowsItsDescriptor) {
  const int out = dup(ends_[1]);
  TryWriter writer(out);
  writer.Write("x");
  char name[] = "/tmp/try_writer_XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  ASSERT_EQ(write(file, "before\n", 7), 7);
  ASSERT_EQ(dup2(file, out), out);
  EXPECT_EQ(writer.Write("after\n"), 6);
  char text[100];
  ASSERT_EQ(pread(file, text, sizeof(text), 0), 13);
  EXPECT_EQ(std::string(text, 13), "before\nafter\n");
  close(file);
  close(out);
}

}  // namespace
}  // namespace psring
