#include "common/net/shared_counter.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>
#include <thread>

#include "absl/time/clock.h"

namespace psring {
namespace {

// Two counters that two processes share.
SharedCounter* MakeShared() {
  void* memory =
      mmap(nullptr, 2 * sizeof(SharedCounter), PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return static_cast<SharedCounter*>(memory);
}

class PolicyTest : public ::testing::TestWithParam<SpinPolicy> {};

// Each waits for the other, thousands of times: a lost wake-up would take all
// of its limit.
TEST_P(PolicyTest, ProcessesPassTheTurnToEachOther) {
  constexpr uint32_t kTurns = 5000;
  SharedCounter* counters = MakeShared();
  const pid_t child = fork();
  SharedCounter& mine = counters[child == 0 ? 1 : 0];
  SharedCounter& theirs = counters[child == 0 ? 0 : 1];
  bool all = true;
  for (uint32_t i = 1; i <= kTurns && all; ++i) {
    if (child == 0) {
      all = theirs.Await(i, GetParam(), absl::Seconds(30));
      mine.Set(i);
    } else {
      mine.Set(i);
      all = theirs.Await(i, GetParam(), absl::Seconds(30));
    }
  }
  if (child == 0) _exit(all ? 0 : 1);
  EXPECT_TRUE(all);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(mine.sleepers.load() + theirs.sleepers.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, PolicyTest,
                         ::testing::Values(SpinPolicy{0, 0}, SpinPolicy{100, 0},
                                           SpinPolicy{10, 10}));

// Who looks for minutes would keep the core from whom it waits for.
TEST(SharedCounter, OnTheCoreOfWhoAdvancedItAWaitSleepsAtOnce) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  SharedCounter* counter = MakeShared();
  counter->Set(0);
  EXPECT_FALSE(counter->Await(1, {.spins = std::numeric_limits<int>::max()},
                              absl::Milliseconds(5)));
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(SharedCounter, AWaitEndsWithItsLimit) {
  SharedCounter* counter = MakeShared();
  EXPECT_FALSE(counter->Await(1, {}, absl::Milliseconds(5)));
  counter->Set(1);
  EXPECT_TRUE(counter->Await(1, {}, absl::Milliseconds(5)));
}

// Set wakes those who sleep after it has stored the value: when they have seen
// that, and wait for the next one.
TEST(SharedCounter, ALateWakeUpDoesNotEndAWait) {
  SharedCounter* counter = MakeShared();
  std::thread setter([&] {
    while (counter->sleepers.load() == 0) sched_yield();
    for (int i = 0; i < 20; ++i) {
      counter->Set(0);
      absl::SleepFor(absl::Milliseconds(1));  // for it to look
    }
    counter->Set(1);
  });
  EXPECT_TRUE(counter->Await(1, {}, absl::Seconds(30)));
  setter.join();
  EXPECT_EQ(counter->sleepers.load(), 0);
}

TEST(SharedCounter, CountsWrap) {
  SharedCounter* counter = MakeShared();
  counter->Set(0xffffffffu);
  EXPECT_TRUE(counter->Reached(0xfffffff0u));
  EXPECT_FALSE(counter->Reached(2));
  counter->Set(2);
  EXPECT_TRUE(counter->Reached(0xffffffffu));
  EXPECT_TRUE(counter->Reached(2));
}

}  // namespace
}  // namespace psring
