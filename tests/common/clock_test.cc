#include "common/clock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/mutex.h"

namespace psring {
namespace {

constexpr absl::Duration kStop = absl::Seconds(4);
constexpr absl::Duration kLittle = absl::Seconds(1);

// Stops this process and lets it go on, from a child.
class Stopper {
 public:
  explicit Stopper(absl::Duration after) {
    const pid_t parent = getpid();
    child_ = fork();
    if (child_ > 0) return;
    absl::SleepFor(after);
    kill(parent, SIGSTOP);
    absl::SleepFor(kStop);
    kill(parent, SIGCONT);
    _exit(0);
  }
  ~Stopper() { waitpid(child_, nullptr, 0); }

 private:
  pid_t child_;
};

TEST(Clock, StandsStillWhileTheProcessIsStopped) {
  const Time begin = Now();
  const auto wall_begin = WallNow();
  const absl::Duration stopped = TimeStopped();
  { const Stopper stopper(absl::Milliseconds(100)); }
  const absl::Duration wall = WallNow() - wall_begin;
  ASSERT_GE(wall, kStop);
  EXPECT_LT(Now() - begin, wall - kStop + kLittle);
  EXPECT_GT(TimeStopped() - stopped, kStop - kLittle);
}

TEST(Clock, AWaitGoesOnAfterAStop) {
  Mutex mutex;
  bool done = false;
  const Stopper stopper(absl::Milliseconds(100));
  std::thread setter([&] {
    const Time end = Now() + kLittle;
    while (Now() < end) absl::SleepFor(absl::Milliseconds(10));
    const MutexLock lock(&mutex);
    done = true;
  });
  {
    const MutexLock lock(&mutex);
    // For less time than the process is stopped.
    const Time deadline = Now() + kStop - kLittle / 2;
    EXPECT_TRUE(mutex.AwaitUntil([&] { return done; }, deadline));
  }
  setter.join();
}

TEST(Clock, GoesOnWhereAllThreadsSleepLong) {
  const Time begin = Now();
  absl::SleepFor(absl::Seconds(3));
  EXPECT_GE(Now() - begin, absl::Milliseconds(2900));
}

TEST(Clock, OfAChildOfForkGoesOn) {
  Now();
  const pid_t child = fork();
  if (child == 0) {
    const Time begin = Now();
    absl::SleepFor(absl::Seconds(3));
    _exit(Now() - begin >= absl::Milliseconds(2900) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace psring
