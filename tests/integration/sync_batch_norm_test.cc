// --sync-batch-norm in jobs of real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;
using testing::TestDirectory;

// So few that rounding does not grow: statistics of few values amplify it.
constexpr int kSteps = 2;

class SyncBatchNormJob : public ::testing::Test {
 protected:
  // A new one for each job.
  std::string NewFolder() {
    ++num_jobs_;
    return LastFolder();
  }
  std::string LastFolder() const {
    return absl::StrCat(folder_, "/", num_jobs_);
  }

  Ran Run(LaunchedJob job, int batch_size, const std::vector<std::string>& more,
          const std::string& model = "resnet18") {
    job.worker_flags = {"--model=" + model,
                        "--data=synthetic:3x32x32,classes=4,train=64,test=16",
                        absl::StrCat("--batch-size=", batch_size),
                        "--lr=0.01",
                        absl::StrCat("--steps=", kSteps),
                        "--checkpoint-dir=" + NewFolder()};
    job.worker_flags.insert(job.worker_flags.end(), more.begin(), more.end());
    return RunLaunch(job);
  }

  // What is printed behind `name` in the last epoch's line.
  double Loss(const LaunchedJob& job, int batch_size, const std::string& name,
              const std::vector<std::string>& more) {
    const Ran ran = Run(job, batch_size, more);
    EXPECT_EQ(ran.code, 0) << ran.output;
    const size_t at = ran.output.rfind(name + " ");
    EXPECT_NE(at, std::string::npos) << ran.output;
    return std::atof(ran.output.c_str() + at + name.size());
  }

  const std::string folder_ = TestDirectory();
  int num_jobs_ = 0;
};

TEST_F(SyncBatchNormJob, EndsWithTheSameBitsInBothTopologies) {
  std::vector<std::string> ends;
  for (const std::string mode : {"ring", "ps"}) {
    const Ran ran = Run({.mode = mode}, 4, {"--sync-batch-norm"});
    EXPECT_EQ(ran.code, 0) << ran.output;
    ends.push_back(CheckpointAt(LastFolder(), kSteps));
  }
  EXPECT_EQ(CheckpointDifference(ends[0], ends[1]), "");
}

// All workers' batches are one batch: as if one worker had it.
TEST_F(SyncBatchNormJob, TrainsFourWorkersAsOneWithTheirBatches) {
  const std::vector<std::string> none;
  for (const std::string name : {"train loss", "test loss"}) {
    const double one = Loss({.workers = 1}, 8, name, none);
    const double four = Loss({.workers = 4}, 2, name, {"--sync-batch-norm"});
    const double apart = Loss({.workers = 4}, 2, name, none);
    EXPECT_NEAR(four, one, 0.002) << name;
    EXPECT_GT(std::abs(apart - one), 0.02) << name;
  }
}

TEST_F(SyncBatchNormJob, IsRefusedWhereItMeansNothing) {
  Ran ran = Run({.mode = "ring"}, 4, {"--sync-batch-norm"}, "mlp:3072-4");
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.output, HasSubstr("mlp:3072-4 has no batch norm"));
  ran = Run({.mode = "ps"}, 4, {"--sync-batch-norm", "--sync=async"});
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.output, HasSubstr("or --sync=bsp without --backup-workers"));
}

}  // namespace
}  // namespace psring
