// A process whose main thread hangs while its heartbeats live: the others are
// told its name, and that it hangs. What they are told where their own patience
// ends first: tests/python/test_failures.py.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/integration/hand_job.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

// Whether a thread that is stopped waits in a system call: so it holds no lock,
// as it may in the middle of malloc, that its process needs to end.
bool Waits(pid_t thread) {
  std::ifstream file(absl::StrCat("/proc/", thread, "/syscall"));
  long number = -1;  // also of a thread that is in none
  file >> number;
#ifdef SYS_poll
  if (number == SYS_poll) return true;
#endif
  return number == SYS_ppoll || number == SYS_clock_nanosleep;
}

// Stops the process's main thread alone.
void Hang(Process& process) {
  const pid_t thread = process.pid();
  ASSERT_EQ(ptrace(PTRACE_SEIZE, thread, nullptr, nullptr), 0);
  const Time deadline = Soon();
  do {
    ASSERT_LT(Now(), deadline) << "it never waits";
    ptrace(PTRACE_CONT, thread, nullptr, nullptr);
    ASSERT_EQ(ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr), 0);
    int status = 0;
    ASSERT_EQ(waitpid(thread, &status, __WALL), thread);
    ASSERT_TRUE(WIFSTOPPED(status));
  } while (!Waits(thread));
}

// Worker 1 computes for most of the time, but now and then it waits for the
// others: then it has to run on.
void ExpectNamed(const HandJobOptions& options) {
  HandJob job(options);
  job.StartAll();
  job.TrainFor(absl::Seconds(1));
  Process& culprit = job["worker 1"];
  for (int attempt = 0; attempt < 10; ++attempt) {
    Hang(culprit);
    if (job["worker 0"].Wait(Now() + absl::Seconds(30)) != -1) break;
    ASSERT_EQ(ptrace(PTRACE_DETACH, culprit.pid(), nullptr, nullptr), 0);
    EXPECT_EQ(culprit.Wait(Now() + absl::Milliseconds(77)), -1);
  }
  job.ExpectOthersFail("worker 1", {"worker 1", "hangs", "computing"});
  // By itself, as nobody else might end it.
  EXPECT_EQ(culprit.Wait(Soon()), 1);
  EXPECT_NE(culprit.Output().find("This process hangs, and ends now"),
            std::string::npos);
}

HandJobOptions SlowWorker1() {
  HandJobOptions options;
  options.worker_flags = EndlessTraining();
  // 20 times what a step takes, its first one included, is less than that.
  options.worker_flags.push_back("--slow=worker:1:x20");
  options.worker_flags.push_back("--progress-timeout=10");
  return options;
}

TEST(HangTest, EndsARing) {
  HandJobOptions options = SlowWorker1();
  options.mode = "ring";
  ExpectNamed(options);
}

TEST(HangTest, EndsAnAsynchronousJobThatWaitsForNobody) {
  HandJobOptions options = SlowWorker1();
  options.worker_flags.push_back("--sync=async");
  ExpectNamed(options);
}

}  // namespace
}  // namespace psring
