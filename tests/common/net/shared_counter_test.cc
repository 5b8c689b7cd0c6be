#include "common/net/shared_counter.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>

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

// The calling process and a child wait for each other, `turns` times. Returns
// whether no wait ended without its turn.
bool PassTurns(SharedCounter* counters, uint32_t turns,
               const SpinPolicy& policy) {
  const pid_t child = fork();
  SharedCounter& mine = counters[child == 0 ? 1 : 0];
  SharedCounter& theirs = counters[child == 0 ? 0 : 1];
  bool all = true;
  for (uint32_t i = 1; i <= turns && all; ++i) {
    if (child != 0) mine.Set(i);
    all = theirs.Await(i, policy, absl::Seconds(30));
    if (child == 0) mine.Set(i);
  }
  if (child == 0) _exit(all ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return all && status == 0;
}

class PolicyTest : public ::testing::TestWithParam<SpinPolicy> {};

// Each waits for the other, thousands of times: a lost wake-up would take all
// of its limit.
TEST_P(PolicyTest, ProcessesPassTheTurnToEachOther) {
  constexpr uint32_t kTurns = 5000;
  SharedCounter* counters = MakeShared();
  EXPECT_TRUE(PassTurns(counters, kTurns, GetParam()));
  EXPECT_EQ(counters[0].sleepers.load() + counters[1].sleepers.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, PolicyTest,
                         ::testing::Values(SpinPolicy{0, 0}, SpinPolicy{100, 0},
                                           SpinPolicy{10, 10}));

// Who looks for as long as it likes keeps the core from whom it waits for.
TEST(SharedCounter, OnOneCoreAWaitGivesItUp) {
  constexpr uint32_t kTurns = 1000;
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  SharedCounter* counters = MakeShared();
  counters[0].Set(0);
  counters[1].Set(0);
  rusage start, end;
  getrusage(RUSAGE_SELF, &start);
  const bool all =
      PassTurns(counters, kTurns, {.spins = std::numeric_limits<int>::max()});
  getrusage(RUSAGE_SELF, &end);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_TRUE(all);
  // It slept in nearly every turn, and was not just cut short by the kernel.
  EXPECT_GE(end.ru_nvcsw - start.ru_nvcsw, kTurns / 2);
}

TEST(SharedCounter, AWaitEndsWithItsLimit) {
  SharedCounter* counter = MakeShared();
  EXPECT_FALSE(counter->Await(1, {}, absl::Milliseconds(5)));
  counter->Set(1);
  EXPECT_TRUE(counter->Await(1, {}, absl::Milliseconds(5)));
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
