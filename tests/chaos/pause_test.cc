// A coordinator whose process is stopped for a while, as by a debugger or a
// machine that is saved and restored: when it runs again it blames nobody for
// what it could not hear.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

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
      // Others give it up after kDeadAfter, from their last heartbeat's answer.
      job[host].Signal(SIGSTOP);
      EXPECT_EQ(job[other].Wait(Now() + kDeadAfter - 2 * kHeartbeatInterval),
                -1);
      job[host].Signal(SIGCONT);
      EXPECT_EQ(job[other].Wait(Now() + 2 * kHeartbeatInterval), -1);
    }
    for (const std::string& name : job.names()) {
      EXPECT_EQ(job[name].Wait(Now()), -1) << job[name].Output();
    }
  }
}

}  // namespace
}  // namespace psring
