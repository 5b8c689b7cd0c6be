// Runs in which chance decides, repeated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TestDirectory;

constexpr int kSteps = 30;

class ReplayTest : public ::testing::Test {
 protected:
  // Four workers and two servers, unless a test says otherwise.
  static LaunchedJob Job(const std::vector<std::string>& more) {
    LaunchedJob job = {.mode = "ps", .workers = 4, .servers = 2};
    job.worker_flags = {"--model=lenet", "--data=digits:train=512,test=8",
                        "--batch-size=8", "--bucket-mb=0.02",
                        absl::StrCat("--steps=", kSteps)};
    job.worker_flags.insert(job.worker_flags.end(), more.begin(), more.end());
    return job;
  }

  // Trains, and gives the last checkpoint's folder.
  std::string Train(std::vector<std::string> flags) {
    const std::string dir = absl::StrCat(folder_, "/", runs_++);
    flags.push_back("--checkpoint-dir=" + dir);
    const Ran ran = RunLaunch(Job(flags));
    EXPECT_EQ(ran.code, 0) << ran.output;
    return CheckpointAt(dir, kSteps);
  }

  void ExpectTheSameBits(const std::vector<std::string>& flags, int times) {
    std::vector<std::string> recording = flags, replaying = flags;
    recording.push_back("--record=" + log_);
    replaying.push_back("--replay=" + log_);
    const std::string recorded = Train(recording);
    for (int i = 0; i < times; ++i) {
      EXPECT_EQ(CheckpointDifference(recorded, Train(replaying)), "");
    }
  }

  void ExpectRefused(const LaunchedJob& job, const std::string& said) {
    const Ran ran = RunLaunch(job);
    EXPECT_NE(ran.code, 0);
    EXPECT_THAT(ran.output, HasSubstr(said));
  }

  const std::string folder_ = TestDirectory();
  const std::string log_ = folder_ + "/log";
  int runs_ = 0;
};

TEST_F(ReplayTest, OfAnAsyncRunEndsWithTheSameBits) {
  ExpectTheSameBits({"--sync=async", "--lr=0.05"}, 3);
}

TEST_F(ReplayTest, KeepsOptimizerStateAndCures) {
  ExpectTheSameBits(
      {"--sync=async", "--optimizer=momentum", "--momentum=0.5",
       "--delay-compensation=0.1", "--staleness-lr", "--clip-norm=1"},
      1);
}

TEST_F(ReplayTest, WorksByMessageToo) {
  ExpectTheSameBits({"--sync=ssp", "--staleness=2", "--same-host=off"}, 1);
}

TEST_F(ReplayTest, OfBackupWorkersDropsTheSameGradients) {
  ExpectTheSameBits({"--backup-workers=1", "--lr=0.05"}, 2);
}

TEST_F(ReplayTest, OfAnotherJobIsRefusedWithWhatDiffers) {
  Train({"--sync=async", "--record=" + log_});
  const std::string replay = "--replay=" + log_;
  ExpectRefused(Job({"--sync=async", replay, "--seed=1"}),
                "seed: 1 here, 0 in the job that was recorded");
  LaunchedJob job = Job({"--sync=async", replay});
  job.workers = 3;
  ExpectRefused(job, "--workers: 3 here, 4 in the job that was recorded");
  for (int servers : {1, 3}) {
    job = Job({"--sync=async", replay});
    job.servers = servers;
    ExpectRefused(job, absl::StrCat("--servers: ", servers,
                                    " here, 2 in the job that was recorded"));
  }
  ExpectRefused(Job({"--sync=async", "--record=" + log_}),
                "holds an earlier recording");
}

TEST_F(ReplayTest, OfACutRecordingIsRefused) {
  Train({"--sync=async", "--record=" + log_});
  const std::string path = log_ + "/shard-0000.updates";
  fs::resize_file(path, fs::file_size(path) - 20);
  ExpectRefused(Job({"--sync=async", "--replay=" + log_}),
                absl::StrCat(path, " is cut after"));
}

}  // namespace
}  // namespace psring
