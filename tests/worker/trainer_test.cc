#include "worker/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/trace/metrics_reader.h"
#include "tests/testing/test_directory.h"
#include "tests/worker/trainer_fixture.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

TEST_F(TrainerTest, SubmitsEachBucketOnceAStepThenFinishesIt) {
  ASSERT_TRUE(Train().ok());
  ASSERT_THAT(exchange_.calls, SizeIs(4 * (kBuckets + 1) + 1));
  for (int step = 0; step < 4; ++step) {
    const auto begin = exchange_.calls.begin() + step * (kBuckets + 1);
    EXPECT_THAT(
        std::vector<std::string>(begin, begin + kBuckets),
        UnorderedElementsAre("submit 0", "submit 1", "submit 2", "submit 3"));
    EXPECT_EQ(begin[kBuckets], absl::StrCat("finish ", step));
  }
  EXPECT_EQ(end_, 4);
  EXPECT_THAT(model_.trained_on, UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(TrainerTest, ClipsTheWholeGradientBeforeItSubmitsAnyOfIt) {
  options_.clip_norm = 1e-3;
  ASSERT_TRUE(Train().ok());
  ASSERT_THAT(exchange_.norms, SizeIs(4 * kBuckets));
  EXPECT_THAT(exchange_.norms, Each(::testing::DoubleNear(1e-3, 1e-6)));
}

TEST_F(TrainerTest, EndsWithTheErrorOfAFailedSubmit) {
  exchange_.submit_result = absl::UnavailableError("server 2 is gone");
  EXPECT_EQ(Train(), exchange_.submit_result);
  EXPECT_THAT(exchange_.CallsBetweenSteps(), ElementsAre());
}

TEST_F(TrainerTest, EndsWithTheErrorOfAFailedSubmitOfClippedGradients) {
  options_.clip_norm = 1;
  exchange_.submit_result = absl::UnavailableError("server 2 is gone");
  EXPECT_EQ(Train(), exchange_.submit_result);
  EXPECT_THAT(exchange_.calls, SizeIs(1));
}

TEST_F(TrainerTest, EndsWithTheErrorOfAFailedFinish) {
  exchange_.on_finish = [this] {
    if (exchange_.step() == 2) {
      exchange_.finish_result = absl::DeadlineExceededError("worker 1 is late");
    }
  };
  EXPECT_EQ(Train(), absl::DeadlineExceededError("worker 1 is late"));
  EXPECT_THAT(exchange_.CallsBetweenSteps(),
              ElementsAre("finish 0", "finish 1"));
  EXPECT_EQ(end_, 1);
}

TEST_F(TrainerTest, AScaledLossLeavesGradientsAsTheyAre) {
  ASSERT_TRUE(Train().ok());
  const std::vector<double> norms = exchange_.norms;
  const std::vector<std::string> calls = exchange_.calls;
  exchange_.norms.clear();
  exchange_.calls.clear();
  options_.scale_loss = true;
  ASSERT_TRUE(Train().ok());
  // The last of a step: before, buckets leave while others are made.
  for (size_t i = kBuckets - 1; i < norms.size(); i += kBuckets) {
    EXPECT_EQ(exchange_.norms[i], norms[i]);
  }
  EXPECT_EQ(exchange_.CallsBetweenSteps().size(), 5u);
  EXPECT_EQ(exchange_.calls.size(), calls.size());
}

// An overflow of fp16: gradients of a loss above 1,000 are infinite.
TEST_F(TrainerTest, ComputesAStepAgainUntilItsGradientsAreFinite) {
  options_.scale_loss = true;
  model_.overflow_above = 1000;
  ASSERT_TRUE(Train().ok());
  EXPECT_THAT(exchange_.norms, SizeIs(4 * kBuckets));
  for (const double norm : exchange_.norms) EXPECT_TRUE(std::isfinite(norm));
  // 65536 is halved about six times in the first step, and not again.
  EXPECT_GE(model_.trained_on.size(), 2u * (4 + 4));
  EXPECT_LE(model_.trained_on.size(), 2u * (4 + 8));
}

TEST_F(TrainerTest, EndsWhereNoFactorMakesGradientsFinite) {
  options_.scale_loss = true;
  model_.overflow_above = 0;
  const absl::Status status = Train();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step 0"), HasSubstr("--precision=bf16")));
  EXPECT_THAT(exchange_.calls, ElementsAre());
}

TEST_F(TrainerTest, TrainsOnTheSameSamplesWithThreadsThatPrepareThem) {
  ASSERT_TRUE(Train().ok());
  const std::vector<int> samples = model_.trained_on;
  model_.trained_on.clear();
  options_.loader.threads = 2;
  ASSERT_TRUE(Train().ok());
  EXPECT_EQ(model_.trained_on, samples);
}

TEST_F(TrainerTest, EndsWithAnErrorWhereMemoryRunsOut) {
  options_.batch_size = 2;
  model_.no_room_in_training = true;
  absl::Status status = Train();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("training, step 0, 2 samples"),
                    HasSubstr("13.94 MiB is free"), HasSubstr("--batch-size")));
  model_.no_room_in_training = false;
  model_.no_room_in_evaluation = true;
  status = Train();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("evaluation after step 4, 256 samples"),
                    HasSubstr("13.94 MiB is free")));
}

// Or a step of training has room, and an evaluation has not.
TEST_F(TrainerTest, EvaluatesFewLargeImagesAtOnce) {
  model_.no_room_in_evaluation = true;
  data_.test = Numbers(1);
  data_.test.shape = {3, 224, 224, 2};
  data_.test.pixels.resize(3 * 224 * 224);
  data_.test.mean = data_.test.stddev = {1, 1, 1};
  EXPECT_THAT(std::string(Train().message()),
              HasSubstr("evaluation after step 4, 27 samples"));
}

TEST_F(TrainerTest, LeavesOutTheStepsThatTheExchangeLeavesOut) {
  exchange_.on_finish = [this] {
    if (exchange_.step() == 2) exchange_.set_step(3);
  };
  ASSERT_TRUE(Train().ok());
  EXPECT_THAT(
      exchange_.CallsBetweenSteps(),
      ElementsAre("finish 0", "finish 1", "finish 3", "meet to evaluate"));
  EXPECT_EQ(end_, 4);
  // No sample twice, and those of step 2 not at all.
  std::vector<int> samples = model_.trained_on;
  std::sort(samples.begin(), samples.end());
  EXPECT_THAT(samples, SizeIs(6));
  EXPECT_EQ(std::adjacent_find(samples.begin(), samples.end()), samples.end());
}

TEST_F(TrainerTest, EvaluatesAfterEachEpochAndAtTheEnd) {
  options_.plan.steps_per_epoch = 2;
  options_.plan.total_steps = 5;
  ASSERT_TRUE(Train().ok());
  EXPECT_THAT(exchange_.CallsBetweenSteps(),
              ElementsAre("finish 0", "finish 1", "meet to evaluate",
                          "finish 2", "finish 3", "meet to evaluate",
                          "finish 4", "meet to evaluate"));
}

TEST_F(TrainerTest, WritesTheLossesAndTheAccuracyOfAnEpoch) {
  model_.blind = true;
  metrics_dir_ = testing::TestDirectory();
  ASSERT_TRUE(Train().ok());
  const auto metrics = ReadAllMetrics(metrics_dir_);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_THAT(metrics->front().epochs, SizeIs(1));
  const EpochSample& epoch = metrics->front().epochs[0];
  const double right = std::log1p(std::exp(-1.0)), wrong = right + 1;
  EXPECT_EQ(epoch.step, 4);
  EXPECT_NEAR(epoch.train_loss, (right + wrong) / 2, 1e-6);
  EXPECT_NEAR(epoch.test_loss, (2 * right + wrong) / 3, 1e-6);
  EXPECT_NEAR(epoch.test_accuracy, 2.0 / 3, 1e-6);
}

TEST_F(TrainerTest, AnInjectedFaultAddsItsWaitToTheSteps) {
  ASSERT_TRUE(Train().ok());
  EXPECT_EQ(times_.injected, absl::ZeroDuration());
  options_.slowdown = *Slowdown::Create({"worker:0:x2"}, /*seed=*/0);
  ASSERT_TRUE(Train().ok());
  EXPECT_GT(times_.injected, absl::ZeroDuration());
}

TEST_F(TrainerTest, WritesACheckpointEverySoManyStepsAndOneAtTheEnd) {
  options_.plan.total_steps = 4;
  options_.checkpoints.directory = testing::TestDirectory();
  options_.checkpoints.every = 2;
  ASSERT_TRUE(Train().ok());
  EXPECT_THAT(
      exchange_.CallsBetweenSteps(),
      ElementsAre("finish 0", "finish 1", "meet to save", "save", "finish 2",
                  "finish 3", "meet to save", "save", "meet to evaluate"));
  EXPECT_TRUE(fs::exists(options_.checkpoints.directory + "/step-00000002"));
  EXPECT_TRUE(fs::exists(options_.checkpoints.directory + "/step-00000004"));
}

TEST_F(TrainerTest, WritesTheCheckpointThatASkippedStepWasToWrite) {
  options_.checkpoints.directory = testing::TestDirectory();
  options_.checkpoints.every = 2;
  exchange_.on_finish = [this] {
    if (exchange_.step() == 2) exchange_.set_step(3);
  };
  ASSERT_TRUE(Train().ok());
  EXPECT_TRUE(fs::exists(options_.checkpoints.directory + "/step-00000003"));
}

TEST_F(TrainerTest, ACheckpointThatFailsDoesNotEndTraining) {
  options_.plan.total_steps = 6;
  options_.checkpoints.directory = testing::TestDirectory();
  options_.checkpoints.every = 2;
  exchange_.save_result = absl::InternalError("no space left on device");
  exchange_.on_finish = [this] {
    if (exchange_.step() == 4) exchange_.save_result = absl::OkStatus();
  };
  ASSERT_TRUE(Train().ok());
  EXPECT_EQ(end_, 6);
  EXPECT_FALSE(fs::exists(options_.checkpoints.directory + "/step-00000002"));
  EXPECT_TRUE(fs::exists(options_.checkpoints.directory + "/step-00000004"));
}

// Training may have taken days.
TEST_F(TrainerTest, AnEvaluationThatFailsAfterTheLastStepLosesNothing) {
  options_.checkpoints.directory = testing::TestDirectory();
  model_.no_room_in_evaluation = true;
  EXPECT_TRUE(absl::IsResourceExhausted(Train()));
  EXPECT_TRUE(fs::exists(options_.checkpoints.directory + "/step-00000004"));
}

TEST_F(TrainerTest, ALastCheckpointThatFailsIsAnError) {
  options_.checkpoints.directory = testing::TestDirectory();
  exchange_.save_result = absl::InternalError("no space left on device");
  const absl::Status status = Train();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the last checkpoint, of step 4"),
                    HasSubstr("no space left on device"), HasSubstr("are lost"),
                    HasSubstr(options_.checkpoints.directory)));
  EXPECT_EQ(end_, 4);
}

TEST_F(TrainerTest, ACheckpointThatFailsWithTheJobEndsTraining) {
  options_.checkpoints.directory = testing::TestDirectory();
  options_.checkpoints.every = 2;
  exchange_.save_result = absl::DeadlineExceededError("server 2 is late");
  EXPECT_EQ(Train(), exchange_.save_result);
  EXPECT_EQ(end_, 2);
}

TEST_F(TrainerTest, KeepsTheNewestCheckpoints) {
  options_.plan.total_steps = 5;
  options_.checkpoints.directory = testing::TestDirectory();
  options_.checkpoints.every = 1;
  options_.checkpoints.keep = 2;
  ASSERT_TRUE(Train().ok());
  EXPECT_FALSE(fs::exists(options_.checkpoints.directory + "/step-00000003"));
  EXPECT_TRUE(fs::exists(options_.checkpoints.directory + "/step-00000004"));
  EXPECT_TRUE(fs::exists(options_.checkpoints.directory + "/step-00000005"));
}

TEST_F(TrainerTest, WritesOnlyTheLastCheckpointUnlessToldOtherwise) {
  options_.checkpoints.directory = testing::TestDirectory();
  ASSERT_TRUE(Train().ok());
  EXPECT_EQ(*std::prev(exchange_.calls.end(), 2), "save");
  EXPECT_EQ(std::count(exchange_.calls.begin(), exchange_.calls.end(), "save"),
            1);
}

TEST_F(TrainerTest, EndsWithAdviceWhenTheLossIsNoNumber) {
  exchange_.on_finish = [this] {
    flat_.parameters.data()[0] = std::numeric_limits<float>::quiet_NaN();
  };
  const absl::Status status = Train();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("the loss of step 1 is "), HasSubstr("A smaller --lr")));
}

TEST_F(TrainerTest, TheLastUpdateThatDivergesIsAnError) {
  exchange_.on_finish = [this] {
    if (exchange_.step() < 4) return;
    flat_.parameters.data()[0] = std::numeric_limits<float>::quiet_NaN();
  };
  const absl::Status status = Train();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the test loss after step 4 is "),
                    HasSubstr("A smaller --lr")));
}

TEST_F(TrainerTest, ADivergedModelDoesNotReplaceHealthyCheckpoints) {
  options_.checkpoints.directory = testing::TestDirectory();
  options_.checkpoints.every = 1;
  options_.checkpoints.keep = 1;
  for (const int64_t last_healthy : {2, 3}) {
    exchange_.on_finish = [this, last_healthy] {
      if (exchange_.step() <= last_healthy) return;
      flat_.parameters.data()[0] = std::numeric_limits<float>::infinity();
    };
    const absl::Status status = Train();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("fc1.weight is not finite after step ",
                                       last_healthy + 1)));
    EXPECT_TRUE(fs::exists(absl::StrCat(options_.checkpoints.directory,
                                        "/step-0000000", last_healthy)));
    for (float& p : flat_.parameters.span()) p = 0;
  }
}

TEST_F(TrainerTest, ARunThatHasEndedIsEvaluatedWhenItIsResumed) {
  options_.checkpoints.directory = testing::TestDirectory();
  options_.progress.step = 4;
  metrics_dir_ = testing::TestDirectory();
  ASSERT_TRUE(Train().ok());
  EXPECT_THAT(exchange_.calls, ElementsAre("meet to evaluate"));
  const auto metrics = ReadAllMetrics(metrics_dir_);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_THAT(metrics->front().epochs, SizeIs(1));
  EXPECT_EQ(metrics->front().epochs[0].step, 4);
  EXPECT_EQ(metrics->front().epochs[0].epoch, 1);
  EXPECT_TRUE(std::isnan(metrics->front().epochs[0].train_loss));
}

TEST_F(TrainerTest, EndsWithAdviceWhenAClippedGradientIsNoNumber) {
  options_.clip_norm = 1;
  for (float& p : flat_.parameters.span()) p = 0;
  data_.train.mean = {std::numeric_limits<double>::quiet_NaN()};
  const absl::Status status = Train();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the norm of step 0's gradient is "),
                    HasSubstr("A smaller --lr")));
  EXPECT_THAT(exchange_.calls, ElementsAre());
}

TEST_F(TrainerTest, ResumesWhereTheCheckpointWasMade) {
  options_.plan.total_steps = 8;
  ASSERT_TRUE(Train().ok());
  const std::vector<int> whole = model_.trained_on;
  const std::vector<float> chances = model_.chances;
  ASSERT_THAT(whole, SizeIs(16));
  model_.trained_on.clear();
  model_.chances.clear();
  exchange_.calls.clear();
  options_.progress.step = 5;
  ASSERT_TRUE(Train().ok());
  EXPECT_THAT(
      exchange_.CallsBetweenSteps(),
      ElementsAre("finish 5", "finish 6", "finish 7", "meet to evaluate"));
  EXPECT_THAT(model_.trained_on,
              ElementsAreArray(whole.begin() + 10, whole.end()));
  EXPECT_THAT(model_.chances,
              ElementsAreArray(chances.begin() + 5, chances.end()));
}

}  // namespace
}  // namespace psring
