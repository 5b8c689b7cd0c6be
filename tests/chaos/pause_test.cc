// A coordinator whose process is stopped for a while, as by a debugger or a
// machine that is saved and restored: when it runs again it blames nobody for
// what it could not hear.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/membership.h"
#include "tests/integration/hand_job.h"

namespace psring {
namespace {

TEST(PauseTest, OfTheCoordinatorEndsNothing) {
  for (const std::string mode : {"ps", "ring"}) {
    HandJob job({.mode = mode, .worker_flags = EndlessTraining()});
    job.StartAll();
    job.TrainFor(absl::Seconds(2));
    const std::string& host = job.names().front();
    const std::string& other = job.names().back();
    for (int i = 0; i < 3; ++i) {
      // Others give it up after kHeartbeatTimeout, from their last heartbeat's
      // answer.
      job[host].Signal(SIGSTOP);
      EXPECT_EQ(job[other].Wait(Now() + kHeartbeatTimeout / 2), -1);
      job[host].Signal(SIGCONT);
      EXPECT_EQ(job[other].Wait(Now() + 2 * kHeartbeatInterval), -1);
    }
    for (const std::string& name : job.names()) {
      EXPECT_EQ(job[name].Wait(Now()), -1) << job[name].Output();
    }
  }
}

// The others have ended by then; it can only find them silent.
TEST(PauseTest, OfTheCoordinatorForTooLongIsSaid) {
  HandJob job({.mode = "ring", .worker_flags = EndlessTraining()});
  job.StartAll();
  job.TrainFor(absl::Seconds(2));
  const std::string& host = job.names().front();
  const std::string& other = job.names().back();
  job[host].Signal(SIGSTOP);
  EXPECT_EQ(job[other].Wait(Soon()), 1);
  job[host].Signal(SIGCONT);
  EXPECT_EQ(job[host].Wait(Soon()), 1);
  EXPECT_THAT(LastLine(job[host].Output()),
              ::testing::HasSubstr(
                  "The coordinator's process was stopped shortly before"));
}

// As SIGSTOP of a process group, a batch system that suspends a job, or a
// virtual machine that is moved: nobody has missed a deadline, since nobody
// could do anything.
TEST(PauseTest, OfTheWholeJobEndsNothing) {
  const struct {
    std::string mode;
    Flags flags;
  } kJobs[] = {
      {"ps", {}}, {"ps", kMessages}, {"ring", {}}, {"ring", kMessages}};
  for (const auto& [mode, flags] : kJobs) {
    HandJobOptions options{.mode = mode, .servers = 2};
    options.worker_flags = EndlessTraining();
    options.cluster_flags = flags;
    options.cluster_flags.push_back("--step-timeout=5");
    HandJob job(options);
    job.StartAll();
    job.TrainFor(absl::Seconds(2));
    for (int i = 0; i < 2; ++i) {
      for (const std::string& name : job.names()) job[name].Signal(SIGSTOP);
      absl::SleepFor(absl::Seconds(12));  // of a step and its backstop, too
      for (const std::string& name : job.names()) job[name].Signal(SIGCONT);
      EXPECT_EQ(job[job.names().back()].Wait(Now() + absl::Seconds(2)), -1);
    }
    for (const std::string& name : job.names()) {
      EXPECT_EQ(job[name].Wait(Now()), -1)
          << mode << " " << name << ": " << LastLine(job[name].Output());
    }
  }
}

}  // namespace
}  // namespace psring
