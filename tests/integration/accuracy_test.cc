// What each way of training reaches on real digits, in four epochs.
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/trace/metrics_reader.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/mnist.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

class AccuracyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(MnistDirectory())) {
      GTEST_SKIP() << "no MNIST: PSRING_MNIST_DIR is not set, and no "
                   << MnistDirectory();
    }
  }

  // On the test set, after the last epoch; 0 when the job fails.
  double Accuracy(const std::string& mode, int seed,
                  const std::vector<std::string>& more_flags = {}) {
    const std::string metrics = absl::StrCat(folder_, "/", runs_++);
    LaunchedJob job = {
        .mode = mode,
        .workers = 2,
        .launch_flags = {"--metrics-dir=" + metrics},
        .worker_flags = {"--model=lenet", "--data=mnist:" + MnistDirectory(),
                         "--batch-size=64", "--lr=0.1", "--momentum=0.5",
                         "--epochs=4", absl::StrCat("--seed=", seed)}};
    job.worker_flags.insert(job.worker_flags.end(), more_flags.begin(),
                            more_flags.end());
    const Ran ran = RunLaunch(job);
    EXPECT_EQ(ran.code, 0) << ran.output;
    MetricsReader reader(metrics + "/worker-0.jsonl");
    EXPECT_TRUE(reader.Read().ok());
    const auto& epochs = reader.metrics().epochs;
    EXPECT_EQ(epochs.size(), 4u);
    if (epochs.empty()) return 0;
    RecordProperty(absl::StrCat(mode, "_seed", seed),
                   absl::StrCat(epochs.back().test_accuracy));
    return epochs.back().test_accuracy;
  }

  const std::string folder_ = testing::TestDirectory();
  int runs_ = 0;
};

TEST_F(AccuracyTest, RingReaches94PercentAndServersTheSame) {
  const double ring = Accuracy("ring", 0);
  EXPECT_GE(ring, 0.94);
  EXPECT_EQ(Accuracy("ps", 0, {"--sync=bsp"}), ring);
}

// Of 4 bytes a value one travels.
TEST_F(AccuracyTest, InEightBitsTheyReach93Point5PercentAndTheSame) {
  const double ring = Accuracy("ring", 0, {"--compress=int8"});
  EXPECT_GE(ring, 0.935);
  EXPECT_EQ(Accuracy("ps", 0, {"--compress=int8"}), ring);
}

TEST_F(AccuracyTest, OneBitWithErrorFeedbackReaches93Percent) {
  EXPECT_GE(Accuracy("ps", 0, {"--compress=onebit"}), 0.93);
}

TEST_F(AccuracyTest, BoundedStalenessReaches93Point5Percent) {
  EXPECT_GE(Accuracy("ps", 0, {"--sync=ssp", "--staleness=3"}), 0.935);
}

TEST_F(AccuracyTest, AsyncReaches93Percent) {
  EXPECT_GE(Accuracy("ps", 0, {"--sync=async"}), 0.93);
}

}  // namespace
}  // namespace psring
