// Strangers at every port of a job that trains: it goes on, and ends with the
// weights that it would have ended with.
#include "tests/integration/intruder.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/hand_job.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/proc_fs.h"
#include "tests/testing/test_directory.h"
#include "worker/checkpoint_directory.h"

namespace psring {
namespace {

// More than there is time for: the job is stopped when all have visited it.
constexpr int kSteps = 10'000'000;

class IntruderTest : public ::testing::TestWithParam<std::string> {
 protected:
  IntruderTest()
      : job_({.mode = GetParam(),
              .servers = 2,
              .worker_flags = SmallTraining(kSteps, dir_),
              .cluster_flags = kMessages}) {}

  // The coordinator's port is the first process's.
  std::map<std::string, size_t> ExpectedPorts() const {
    if (GetParam() == "ring") return {{"worker 0", 2}, {"worker 1", 1}};
    return {{"ps 0", 2}, {"ps 1", 1}, {"worker 0", 0}, {"worker 1", 0}};
  }

  // Said while the training goes on: "dropped peer 00c8 of tcp://...: why".
  static void ExpectDropped(Process& process, int port) {
    EXPECT_TRUE(process.WaitForOutput(
        absl::StrCat(" of tcp://127.0.0.1:", port, ": "), Soon()))
        << process.Output();
  }

  const std::string dir_ = testing::TestDirectory();
  HandJob job_;
};

TEST_P(IntruderTest, DisturbsNothing) {
  job_.StartAll();
  job_.TrainFor(absl::ZeroDuration());
  std::map<std::string, std::vector<int>> all_ports;
  for (const auto& [name, num_ports] : ExpectedPorts()) {
    all_ports[name] = ListeningPorts(job_[name].pid());
    EXPECT_EQ(all_ports[name].size(), num_ports) << name;
  }
  Intruder intruder;
  for (const auto& [name, ports] : all_ports) {
    for (int port : ports) {
      intruder.VisitWithRawBytes(port);
      if (port != job_.port()) {
        intruder.VisitUninvited(port);
        continue;
      }
      intruder.VisitWithFrames(port);
      ExpectDropped(job_[name], port);
    }
  }
  job_["worker 0"].Signal(SIGTERM);
  job_.ExpectAllEndWell();
  const auto checkpoints = CheckpointsIn(dir_);
  ASSERT_TRUE(checkpoints.ok()) << checkpoints.status();
  ASSERT_EQ(checkpoints->size(), 1u);
  const CheckpointEntry& saved = checkpoints->front();
  EXPECT_EQ(CheckpointDifference(saved.path, UndisturbedCheckpoint(
                                                 static_cast<int>(saved.step))),
            "");
}

// Ranks that share memory have no use for a port that strangers could fill.
TEST(SharedMemoryTest, OfARingOnOneHostNobodyListens) {
  HandJob job({.mode = "ring", .worker_flags = EndlessTraining()});
  job.StartAll();
  job.TrainFor(absl::ZeroDuration());
  EXPECT_EQ(ListeningPorts(job["worker 0"].pid()).size(), 1);  // coordinator
  EXPECT_EQ(ListeningPorts(job["worker 1"].pid()).size(), 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, IntruderTest, ::testing::Values("ps", "ring"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace psring
