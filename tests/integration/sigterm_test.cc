// SIGTERM to a training: a checkpoint, a clean end, and the same bits when it
// goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/integration/hand_job.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/process.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"
#include "worker/checkpoint.h"
#include "worker/checkpoint_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;
using ::testing::SizeIs;
using testing::TestDirectory;

// The step of the only checkpoint in `dir`.
int OnlyCheckpoint(const std::string& dir) {
  const auto entries = CheckpointsIn(dir);
  EXPECT_TRUE(entries.ok()) << entries.status();
  EXPECT_THAT(*entries, SizeIs(1));
  return entries->empty() ? 0 : static_cast<int>(entries->back().step);
}

LaunchedJob Launched(const std::string& mode, Flags worker_flags) {
  return {.mode = mode, .workers = 3, .worker_flags = std::move(worker_flags)};
}

class Sigterm : public ::testing::TestWithParam<std::string> {
 protected:
  const std::string folder_ = TestDirectory();
  const std::string parts_ = folder_ + "/parts";
};

// While the launcher waits for the coordinator's port: it starts no worker that
// would train on without knowing of the signal.
TEST_P(Sigterm, WhileTheLauncherStartsTheJobEndsIt) {
  Flags endless = EndlessTraining();
  endless.push_back("--checkpoint-dir=" + parts_);
  auto launch = Process::Start(LaunchArgv(Launched(GetParam(), endless)));
  ASSERT_TRUE(launch.ok()) << launch.status();
  ASSERT_TRUE(launch->WaitForOutput("waits for", Soon())) << launch->Output();
  launch->Signal(SIGTERM);
  const int code = launch->Wait(Soon());
  EXPECT_THAT(code, AnyOf(0, 128 + SIGTERM)) << launch->Output();
  EXPECT_THAT(launch->Output(), Not(HasSubstr("--grace-period")));
}

// To the launcher alone, which passes it on to all workers.
TEST_P(Sigterm, OfALaunchedJobSavesAndTheJobGoesOnWithTheSameBits) {
  Flags endless = EndlessTraining();
  endless.push_back("--checkpoint-dir=" + parts_);
  auto launch = Process::Start(LaunchArgv(Launched(GetParam(), endless)));
  ASSERT_TRUE(launch.ok()) << launch.status();
  ASSERT_TRUE(launch->WaitForOutput("epoch 2 step", Soon()))
      << launch->Output();
  launch->Signal(SIGTERM);
  ASSERT_EQ(launch->Wait(Soon()), 0) << launch->Output();
  EXPECT_EQ(LastLine(launch->Output()),
            "psring launch: all processes have ended well after SIGTERM");
  const int stopped = OnlyCheckpoint(parts_);
  EXPECT_THAT(
      launch->Output(),
      HasSubstr(absl::StrCat("all workers stop after step ", stopped, " of ")));
  // Two and a half epochs more.
  const int steps = stopped + 27;
  Flags whole = SmallTraining(steps, folder_ + "/whole");
  Flags rest = SmallTraining(steps, parts_);
  rest.push_back("--resume");
  for (const Flags& flags : {whole, rest}) {
    const Ran ran = RunLaunch(Launched(GetParam(), flags));
    ASSERT_EQ(ran.code, 0) << ran.output;
  }
  EXPECT_EQ(CheckpointDifference(CheckpointAt(folder_ + "/whole", steps),
                                 CheckpointAt(parts_, steps)),
            "");
}

// As when one host is taken away. Again and again, as srun and a launcher
// below it send it.
TEST_P(Sigterm, OfOneWorkerEndsAllWell) {
  HandJob job({.mode = GetParam(), .worker_flags = EndlessTraining()});
  job.StartAll();
  job.TrainFor(absl::ZeroDuration());
  job["worker 1"].Signal(SIGTERM);
  job["worker 1"].Signal(SIGTERM);
  job.ExpectAllEndWell();
}

// As when a host is taken away that only a server is on. Slurm signals the
// servers of a job, too.
TEST(SigtermOfAServer, EndsAllWell) {
  const std::string dir = TestDirectory();
  Flags flags = EndlessTraining();
  flags.push_back("--checkpoint-dir=" + dir);
  HandJob job({.mode = "ps", .worker_flags = flags});
  job.StartAll();
  job.TrainFor(absl::ZeroDuration());
  job["ps 0"].Signal(SIGTERM);
  job["ps 0"].Signal(SIGTERM);
  job.ExpectAllEndWell();
  OnlyCheckpoint(dir);
}

INSTANTIATE_TEST_SUITE_P(Modes, Sigterm, ::testing::Values("ps", "ring"),
                         [](const auto& info) { return info.param; });

// Where no step holds workers together, nobody makes up for others first: a
// slow one would not get there in time.
TEST(SigtermOfUnequalWorkers, StopsEachWhereItIs) {
  const std::string dir = TestDirectory();
  const std::string data = "--data=digits:train=32000,test=64";
  Flags flags = EndlessTraining();
  flags[1] = data;
  flags.insert(flags.end(), {"--sync=async", "--slow=worker:1:x30",
                             "--checkpoint-dir=" + dir});
  HandJob job({.mode = "ps", .worker_flags = flags});
  job.StartAll();
  // Worker 0 is at the end of its epoch, of 2000 steps, long before worker 1,
  // which takes most of a minute.
  ASSERT_TRUE(job["worker 0"].WaitForOutput("trains mlp", Soon()));
  absl::SleepFor(absl::Seconds(2));
  job["worker 0"].Signal(SIGTERM);
  job.ExpectAllEndWell();
  const int stopped = OnlyCheckpoint(dir);
  EXPECT_THAT(stopped, AllOf(Gt(0), Lt(2000)));
  const std::string said =
      absl::StrCat(" and all after step ", stopped, " on average");
  EXPECT_THAT(job["worker 0"].Output(), HasSubstr(said));
  EXPECT_THAT(job["worker 1"].Output(), HasSubstr(said));
  // Both workers' steps are updates.
  const auto progress = VerifyCheckpoint(CheckpointAt(dir, stopped));
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_THAT(*progress->updates, AnyOf(2 * stopped, 2 * stopped - 1));
  flags = SmallTraining(stopped + 20, dir);
  flags[1] = data;
  flags.insert(flags.end(), {"--sync=async", "--resume"});
  const Ran ran =
      RunLaunch({.mode = "ps", .workers = 2, .worker_flags = flags});
  EXPECT_EQ(ran.code, 0) << ran.output;
}

// For an engine that takes 0 for the end of the training.
TEST(SigtermExitCode, IsTheFlags) {
  Flags flags = EndlessTraining();
  flags.push_back("--stopped-exit-code=75");
  HandJob job({.mode = "ring", .worker_flags = flags});
  job.StartAll();
  job.TrainFor(absl::ZeroDuration());
  job["worker 1"].Signal(SIGTERM);
  for (const std::string& name : job.names()) {
    EXPECT_EQ(job[name].Wait(Soon()), 75) << job[name].Output();
  }
}

// Between two averages every worker has parameters of its own.
TEST(SigtermWithLocalSteps, StopsAtAnAverage) {
  const std::string dir = TestDirectory();
  Flags flags = EndlessTraining();
  flags.insert(flags.end(), {"--local-steps=7", "--checkpoint-dir=" + dir});
  HandJob job({.mode = "ring", .worker_flags = flags});
  job.StartAll();
  job.TrainFor(absl::ZeroDuration());
  job["worker 0"].Signal(SIGTERM);
  job.ExpectAllEndWell();
  EXPECT_EQ(OnlyCheckpoint(dir) % 7, 0);
}

}  // namespace
}  // namespace psring
