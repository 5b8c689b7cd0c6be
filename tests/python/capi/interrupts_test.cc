#include "python/capi/interrupts.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <iterator>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/cancellation.h"

namespace psring {
namespace {

int64_t NumThreads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

// As in a program that has opened all files that it may.
TEST(InterruptScope, WithoutADescriptorNoThreadStarts) {
  static Cancellation cancellation;
  signal(SIGINT, [](int) {});
  const int64_t before = NumThreads();
  rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  rlimit none = files;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < 3; ++i) {
    const InterruptScope scope(cancellation);
    raise(SIGINT);
    EXPECT_TRUE(scope.interrupted());
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(NumThreads(), before);
  EXPECT_TRUE(cancellation.status().ok());

  const InterruptScope scope(cancellation);  // once there is one again
  raise(SIGINT);
  EXPECT_FALSE(cancellation.SleepUntil(Now() + absl::Seconds(60)).ok());
}

}  // namespace
}  // namespace psring
