#include "common/process/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/cluster/activity.h"

namespace psring {

// Not static: it has a name in the program.
__attribute__((noinline)) void WaitsForTheEndOfTheTest(
    absl::Notification& ready, absl::Notification& end) {
  ready.Notify();
  end.WaitForNotification();
}

#ifdef __x86_64__
// Counts `rounds` down. Without unwind tables.
extern "C" void CountDownUnseen(int64_t rounds);
asm(".pushsection .text\n"
    ".globl CountDownUnseen\n"
    "CountDownUnseen:\n"
    "1: dec %rdi\n"
    "jnz 1b\n"
    "ret\n"
    ".popsection\n");

__attribute__((noinline)) void MultipliesUntil(const std::atomic<bool>& end,
                                               absl::Notification& ready) {
  ready.Notify();
  while (!end) {
    CountDownUnseen(1 << 22);
    for (int i = 0; i < 1 << 22; ++i) asm volatile("" ::: "memory");
  }
}
#endif

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A thread that waits, with what `prepare` has done to it.
class Waiting {
 public:
  template <typename Prepare>
  explicit Waiting(const Prepare& prepare)
      : thread_([this, prepare] {
          prepare();
          WaitsForTheEndOfTheTest(ready_, end_);
        }) {
    ready_.WaitForNotification();
  }
  ~Waiting() {
    end_.Notify();
    thread_.join();
  }

 private:
  absl::Notification ready_, end_;
  std::thread thread_;
};

TEST(ThreadsReport, HasTheStackOfEveryThread) {
  const Waiting waiting([] {});
  const std::string report = ThreadsReport(absl::Seconds(20));
  EXPECT_THAT(report, HasSubstr("psring::WaitsForTheEndOfTheTest"));
  EXPECT_THAT(report, HasSubstr("psring::ThreadsReport"));
  EXPECT_THAT(report, Not(HasSubstr("takes no signals")));
}

#ifdef __x86_64__
TEST(ThreadsReport, FindsTheCallersOfCodeWithoutUnwindTables) {
  std::atomic<bool> end = false;
  absl::Notification ready;
  std::thread multiplies([&] { MultipliesUntil(end, ready); });
  ready.WaitForNotification();
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(ThreadsReport(absl::Seconds(20)),
                HasSubstr("psring::MultipliesUntil"));
  }
  end = true;
  multiplies.join();
}
#endif

TEST(ThreadsReport, SaysOfAThreadThatTakesNoSignalsWhereTheKernelHasIt) {
  const Waiting waiting([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
  });
  const std::string report = ThreadsReport(absl::Milliseconds(200));
  EXPECT_THAT(report, HasSubstr("takes no signals; in the kernel: "));
  EXPECT_THAT(report, HasSubstr("psring::ThreadsReport"));
}

TEST(ThreadsReport, SaysWhatThreadsWorkAtAndWaitFor) {
  ActivityBoard board;
  board.own().Work("computing");
  const auto other = board.Add();
  const WaitingForOthers waits(*other, "a step's gradients");
  const std::string report = ThreadsReport(absl::Seconds(20));
  EXPECT_THAT(report, HasSubstr("works: computing\n"));
  EXPECT_THAT(report, HasSubstr("waits: a step's gradients\n"));
}

}  // namespace
}  // namespace psring
