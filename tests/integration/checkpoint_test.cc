// Runs that stop, or are killed, and go on.
#include "worker/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/integration/hand_job.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/proc_fs.h"
#include "tests/testing/process.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"
#include "worker/checkpoint_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TestDirectory;

const LaunchedJob kRing = {.mode = "ring", .workers = 2};
const LaunchedJob kPs = {.mode = "ps", .workers = 2, .servers = 2};

// Dropout, and an epoch of 16 steps.
const std::vector<std::string> kLeNet = {
    "--model=lenet", "--data=digits:train=256,test=8", "--batch-size=8",
    "--momentum=0.5", "--bucket-mb=0.02"};
// Batch norm, with its running statistics.
const std::vector<std::string> kResNet = {"--model=resnet18",
                                          "--data=digits:train=32,test=4",
                                          "--batch-size=4", "--momentum=0.5"};

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name != ".lock") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

class CheckpointTest : public ::testing::Test {
 protected:
  static LaunchedJob Job(LaunchedJob job, const std::vector<std::string>& flags,
                         const std::string& dir, int steps,
                         const std::vector<std::string>& more = {}) {
    job.worker_flags = flags;
    job.worker_flags.push_back("--checkpoint-dir=" + dir);
    job.worker_flags.push_back(absl::StrCat("--steps=", steps));
    job.worker_flags.insert(job.worker_flags.end(), more.begin(), more.end());
    return job;
  }

  static LaunchedJob JobOfEpochs(LaunchedJob job,
                                 const std::vector<std::string>& flags,
                                 const std::string& dir, int epochs,
                                 const std::vector<std::string>& more) {
    job = Job(std::move(job), flags, dir, 0, more);
    for (std::string& flag : job.worker_flags) {
      if (flag == "--steps=0") flag = absl::StrCat("--epochs=", epochs);
    }
    return job;
  }

  static void Train(const LaunchedJob& job) {
    const Ran ran = RunLaunch(job);
    ASSERT_EQ(ran.code, 0) << ran.output;
  }

  // A run that stopped half way and went on equals one that did not stop.
  void ExpectSameBits(const LaunchedJob& before, const LaunchedJob& after,
                      const std::vector<std::string>& flags, int steps) {
    const std::string whole = folder_ + "/whole", parts = folder_ + "/parts";
    Train(Job(before, flags, whole, steps));
    Train(Job(before, flags, parts, steps / 2));
    Train(Job(after, flags, parts, steps, {"--resume"}));
    EXPECT_EQ(CheckpointDifference(CheckpointAt(whole, steps),
                                   CheckpointAt(parts, steps)),
              "");
  }

  // Returns when it has begun to write it; false when it does not get there.
  bool WritesCheckpoint(Process& process, const std::string& folder,
                        int64_t step) {
    const std::string name = fs::path(CheckpointAt(folder, step)).filename();
    const Time deadline = Now() + absl::Minutes(5);
    while (Now() < deadline) {
      if (fs::exists(folder + "/" + name)) return true;
      for (const std::string& other : NamesIn(folder)) {
        if (other.rfind(".incomplete-" + name, 0) == 0) return true;
      }
      if (process.Wait(Now() + absl::Milliseconds(1)) >= 0) return false;
    }
    return false;
  }

  const std::string folder_ = TestDirectory();
};

// Stops within the second epoch, and ends within the third.
TEST_F(CheckpointTest, AResumedRingEndsAsOneThatDidNotStop) {
  ExpectSameBits(kRing, kRing, kLeNet, 40);
}

TEST_F(CheckpointTest, ResumedServersEndAsOnesThatDidNotStop) {
  ExpectSameBits(kPs, kPs, kLeNet, 40);
}

TEST_F(CheckpointTest, ServersResumeWhatARingWrote) {
  ExpectSameBits(kRing, kPs, kLeNet, 40);
}

TEST_F(CheckpointTest, ARingResumesWhatServersWrote) {
  ExpectSameBits(kPs, kRing, kLeNet, 40);
}

TEST_F(CheckpointTest, AdamsStateAndScheduleGoOn) {
  std::vector<std::string> flags(kLeNet);
  *std::find(flags.begin(), flags.end(), "--momentum=0.5") = "--lr=0.001";
  flags.insert(flags.end(), {"--optimizer=adam", "--lr-schedule=step",
                             "--lr-step-epochs=1", "--warmup-epochs=0.5"});
  ExpectSameBits(kPs, kRing, flags, 40);
}

// Without momentum: a worker's own optimizer state is not in a checkpoint.
TEST_F(CheckpointTest, LocalStepsGoOnFromTheLastAverage) {
  std::vector<std::string> flags(kLeNet);
  *std::find(flags.begin(), flags.end(), "--momentum=0.5") = "--local-steps=5";
  ExpectSameBits(kPs, kRing, flags, 40);
}

TEST_F(CheckpointTest, BatchNormsStatisticsGoOn) {
  ExpectSameBits(kRing, kPs, kResNet, 4);
}

// Four workers stop in the middle of their second epoch.
TEST_F(CheckpointTest, AnotherNumberOfWorkersTakesWhatTheEpochHasLeft) {
  const LaunchedJob four = {.mode = "ring", .workers = 4};
  const std::string ring = folder_ + "/ring", ps = folder_ + "/ps";
  Train(Job(four, kLeNet, ring, 12));
  fs::copy(ring, ps, fs::copy_options::recursive);
  const std::vector<std::string> more = {"--resume", "--lr-schedule=cosine",
                                         "--warmup-epochs=2"};
  const Ran ran = RunLaunch(JobOfEpochs(kRing, kLeNet, ring, 3, more));
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output,
              HasSubstr("2 workers with a batch size of 8 continue what 4 with "
                        "8 have begun: step 12 takes up epoch 2 at sample 128 "
                        "of 256, which ends at step 20; an epoch has 16 steps "
                        "in place of 8"));
  const auto progress = VerifyCheckpoint(CheckpointAt(ring, 12 + 8 + 16));
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(progress->cursor->epoch(), 3);
  EXPECT_EQ(progress->cursor->samples(), 0);
  // Servers have the same rates.
  Train(JobOfEpochs(kPs, kLeNet, ps, 3, more));
  EXPECT_EQ(CheckpointDifference(CheckpointAt(ring, 36), CheckpointAt(ps, 36)),
            "");
}

TEST_F(CheckpointTest, WritesOneEverySoManySteps) {
  const std::string often = folder_ + "/often", once = folder_ + "/once";
  Train(Job(kPs, kLeNet, often, 10, {"--checkpoint-every=4"}));
  EXPECT_EQ(NamesIn(often),
            (std::vector<std::string>{"step-00000004", "step-00000008",
                                      "step-00000010"}));
  Train(Job(kPs, kLeNet, once, 8));
  EXPECT_EQ(CheckpointDifference(CheckpointAt(often, 8), CheckpointAt(once, 8)),
            "");
}

TEST_F(CheckpointTest, ADamagedOneIsMadeAnewFromTheOneBefore) {
  const std::string whole = folder_ + "/whole", parts = folder_ + "/parts";
  Train(Job(kPs, kLeNet, whole, 8));
  Train(Job(kPs, kLeNet, parts, 8, {"--checkpoint-every=4"}));
  const std::string newest = CheckpointAt(parts, 8);
  fs::resize_file(newest + "/model.safetensors", 100);
  const Ran ran = RunLaunch(Job(kRing, kLeNet, parts, 8, {"--resume"}));
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output,
              HasSubstr("refuses " + newest + ": " + newest +
                        "/model.safetensors is damaged: 100 bytes"));
  EXPECT_EQ(CheckpointDifference(CheckpointAt(whole, 8), newest), "");
}

// As an engine does that restarts a job.
TEST_F(CheckpointTest, TheSameCommandBeginsAJobAndResumesIt) {
  const std::string whole = folder_ + "/whole", parts = folder_ + "/parts";
  Train(Job(kRing, kLeNet, whole, 8));
  const Ran first = RunLaunch(Job(kPs, kLeNet, parts, 4, {"--autoresume"}));
  ASSERT_EQ(first.code, 0) << first.output;
  EXPECT_THAT(first.output, HasSubstr("no checkpoint in " + parts +
                                      ", so this run begins afresh"));
  const Ran second = RunLaunch(Job(kPs, kLeNet, parts, 8, {"--autoresume"}));
  ASSERT_EQ(second.code, 0) << second.output;
  EXPECT_THAT(second.output,
              HasSubstr("resumes from " + CheckpointAt(parts, 4)));
  EXPECT_EQ(
      CheckpointDifference(CheckpointAt(whole, 8), CheckpointAt(parts, 8)), "");
}

// The processes of a launcher, one of which is killed.
TEST_F(CheckpointTest, AJobThatLosesAProcessIsStartedAgainAndEndsTheSame) {
  const std::string whole = folder_ + "/whole", parts = folder_ + "/parts";
  fs::create_directories(parts);
  Train(Job(kPs, kLeNet, whole, 1000));
  LaunchedJob job =
      Job(kPs, kLeNet, parts, 1000,
          {"--autoresume", "--checkpoint-every=20", "--checkpoint-keep=0"});
  job.launch_flags = {"--max-restarts=1"};
  auto launch = Process::Start(LaunchArgv(job));
  ASSERT_TRUE(launch.ok()) << launch.status();
  ASSERT_TRUE(WritesCheckpoint(*launch, parts, 40)) << launch->Output();
  const pid_t server = ChildWith(launch->pid(), "ps/ps ", "--rank=1 ");
  ASSERT_GT(server, 0);
  kill(server, SIGKILL);
  EXPECT_EQ(launch->Wait(Now() + absl::Minutes(5)), 0) << launch->Output();
  EXPECT_THAT(launch->Output(),
              HasSubstr(absl::StrCat("[job] ps 1 (pid ", server,
                                     ") failed: killed by SIGKILL (Killed); "
                                     "starts the job again (restart 1 of 1")));
  EXPECT_THAT(launch->Output(), HasSubstr("resumes from " + parts));
  EXPECT_EQ(CheckpointDifference(CheckpointAt(whole, 1000),
                                 CheckpointAt(parts, 1000)),
            "");
}

// Whoever locked the one that is no longer there has the next one, too.
TEST_F(CheckpointTest, AFolderThatIsRemovedMeanwhileIsStillOneJobs) {
  const std::string parts = folder_ + "/parts";
  const std::vector<std::string> often = {"--checkpoint-every=20"};
  auto launch =
      Process::Start(LaunchArgv(Job(kRing, kLeNet, parts, 1000000, often)));
  ASSERT_TRUE(launch.ok()) << launch.status();
  const auto any = [&] {
    const Time deadline = Now() + absl::Minutes(2);
    while (CheckpointsIn(parts)->empty() && Now() < deadline) {
      if (launch->Wait(Now() + absl::Milliseconds(20)) >= 0) return false;
    }
    return Now() < deadline;
  };
  ASSERT_TRUE(any()) << launch->Output();
  fs::rename(parts, folder_ + "/moved");
  ASSERT_TRUE(any()) << launch->Output();
  const Ran second = RunLaunch(Job(kRing, kLeNet, parts, 4));
  EXPECT_EQ(second.code, 1) << second.output;
  EXPECT_THAT(second.output, HasSubstr("is in use by the job of worker 0"));
  EXPECT_THAT(second.output, HasSubstr("Two jobs cannot write"));
  launch->Signal(SIGTERM);
  EXPECT_EQ(launch->Wait(Now() + absl::Minutes(1)), 0) << launch->Output();
}

// Worker 0 alone reads and writes them.
TEST_F(CheckpointTest, OtherWorkersOfARingNeedNoFolder) {
  const std::string whole = folder_ + "/whole", parts = folder_ + "/parts";
  for (const auto& [folder, steps] :
       {std::pair(whole, 8), std::pair(parts, 4), std::pair(parts, 8)}) {
    Flags flags = SmallTraining(steps, folder);
    flags.push_back("--autoresume");
    HandJob job({.mode = "ring", .worker_flags = flags});
    job.Start("worker 0");
    flags = SmallTraining();
    flags.back() = absl::StrCat("--steps=", steps);
    job.Start("worker 1", flags);
    job.ExpectAllEndWell();
  }
  EXPECT_EQ(
      CheckpointDifference(CheckpointAt(whole, 8), CheckpointAt(parts, 8)), "");
}

TEST_F(CheckpointTest, AWorkerThatResumesAloneIsNamed) {
  Train(Job(kRing, kLeNet, folder_, 4));
  HandJob job({.mode = "ring"});
  Process& first = job.Start("worker 0");
  Flags flags = SmallTraining(40, folder_);
  flags.push_back("--resume");
  Process& second = job.Start("worker 1", flags);
  for (Process* process : {&first, &second}) {
    EXPECT_EQ(process->Wait(Soon()), 1) << process->Output();
    EXPECT_THAT(LastLine(process->Output()),
                HasSubstr("--resume: worker 0, which reads the checkpoint, was "
                          "started without it"));
  }
}

TEST_F(CheckpointTest, ResumesOneThatHasNothingLeftToDo) {
  Train(Job(kRing, kLeNet, folder_, 4));
  Train(Job(kPs, kLeNet, folder_, 4, {"--resume"}));
  EXPECT_EQ(NamesIn(folder_), std::vector<std::string>{"step-00000004"});
}

// Killed while it writes checkpoint after checkpoint, of a size that takes its
// time: whatever stands under a checkpoint's name is whole.
class KilledJobTest : public CheckpointTest,
                      public ::testing::WithParamInterface<const char*> {
 protected:
  void ExpectOnlyWholeCheckpoints() {
    for (const std::string& name : NamesIn(folder_)) {
      if (name.rfind(".incomplete-", 0) == 0) continue;
      const auto progress = VerifyCheckpoint(folder_ + "/" + name);
      EXPECT_TRUE(progress.ok()) << progress.status();
    }
  }
};

TEST_P(KilledJobTest, LeavesWholeCheckpointsAndGoesOnFromTheLast) {
  const LaunchedJob& base = GetParam() == std::string("ring") ? kRing : kPs;
  const std::vector<std::string> flags = {"--model=mlp:784-512-10",
                                          "--data=digits:train=64,test=4",
                                          "--batch-size=1", "--momentum=0.5"};
  int64_t step = 0;
  for (int round = 0; round < 3; ++round) {
    const LaunchedJob job =
        Job(base, flags, folder_, 1000000,
            {"--checkpoint-every=1", round > 0 ? "--resume" : "--seed=0"});
    auto process = Process::Start(LaunchArgv(job));
    ASSERT_TRUE(process.ok()) << process.status();
    ASSERT_TRUE(WritesCheckpoint(*process, folder_, step + 3))
        << process->Output();
    process->Signal(SIGKILL);
    EXPECT_EQ(process->Wait(Now() + absl::Minutes(1)), 128 + SIGKILL);
    ExpectOnlyWholeCheckpoints();
    const auto progress = VerifyCheckpoint(CheckpointsIn(folder_)->back().path);
    ASSERT_TRUE(progress.ok()) << progress.status();
    EXPECT_GE(progress->step, step + 2);
    step = progress->step;
  }
  Train(Job(base, flags, folder_, step + 2, {"--resume"}));
  EXPECT_TRUE(VerifyCheckpoint(CheckpointAt(folder_, step + 2)).ok());
}

INSTANTIATE_TEST_SUITE_P(All, KilledJobTest, ::testing::Values("ring", "ps"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace psring
