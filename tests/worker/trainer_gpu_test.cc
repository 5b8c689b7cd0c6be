// The training loop on a GPU, whose work runs behind the processor's back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/testing/test_directory.h"
#include "tests/worker/trainer_fixture.h"

namespace psring {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::SizeIs;

class TrainerGpuTest : public TrainerTest {
 protected:
  TrainerGpuTest() { device_ = &gpu_; }

  // Gives the GPU work for so long.
  void Take(int milliseconds) {
    gpu_.Enqueue(kComputeStream, [milliseconds] {
      absl::SleepFor(absl::Milliseconds(milliseconds));
      return absl::OkStatus();
    });
  }

  FakeDevice gpu_;
};

// What the processor waits for in Finish is backward, too.
TEST_F(TrainerGpuTest, CountsTheTimesOfTheGpu) {
  model_.on_forward = [&] { Take(250); };
  exchange_.on_finish = [&] {
    Take(20);          // or more, on a busy machine
    gpu_.AwaitIdle();  // as the loss of a step on a GPU is waited for
  };
  ASSERT_TRUE(Train().ok());
  EXPECT_GE(times_.compute, absl::Milliseconds(4 * 250));
  EXPECT_GE(times_.exposed, absl::Milliseconds(4 * 20));
  EXPECT_LT(times_.exposed, absl::Milliseconds(4 * (250 + 20)));
  int num_steps = 0;
  int64_t wait_ns = 0;
  while (const auto event = gpu_track_.Take()) {
    if (event->name == std::string("gpu step")) ++num_steps;
    if (event->name == std::string("gpu wait")) {
      wait_ns += event->end_ns - event->begin_ns;
    }
  }
  EXPECT_EQ(num_steps, 4);
  EXPECT_GE(wait_ns, 4 * 20 * 1'000'000);
}

// The processor is through with it long before the GPU.
TEST_F(TrainerGpuTest, CountsTheLastStepOfAnEpochWhole) {
  ASSERT_TRUE(Train().ok());  // libtorch's first steps take longer
  options_.plan.steps_per_epoch = 1;
  exchange_.on_finish = [&] { Take(100); };
  ASSERT_TRUE(Train().ok());
  EXPECT_GE(training_time_, absl::Milliseconds(4 * 100));
}

TEST_F(TrainerGpuTest, CountsTheLastStepBeforeACheckpointWhole) {
  ASSERT_TRUE(Train().ok());
  options_.checkpoints.directory = testing::TestDirectory();
  options_.checkpoints.every = 1;
  exchange_.on_finish = [&] { Take(100); };
  // As any exchange does before it saves.
  exchange_.on_save = [&] { gpu_.AwaitIdle(); };
  ASSERT_TRUE(Train().ok());
  EXPECT_GE(training_time_, absl::Milliseconds(4 * 100));
}

// It would hide behind a step that the GPU still computes.
TEST_F(TrainerGpuTest, AnInjectedFaultBeginsWhereTheStepBeforeHasEnded) {
  ASSERT_TRUE(Train().ok());
  options_.slowdown = *Slowdown::Create({"worker:0:x3"}, /*seed=*/0);
  model_.on_forward = [&] { Take(50); };
  exchange_.on_finish = [&] { Take(100); };
  ASSERT_TRUE(Train().ok());
  // Nothing is known of the first step before it is over.
  EXPECT_GE(times_.injected, absl::Milliseconds(3 * 2 * 50));
  EXPECT_GE(training_time_, absl::Milliseconds(4 * (50 + 100) + 3 * 2 * 50));
}

TEST_F(TrainerGpuTest, KnowsHowLongEachStepKeptTheGpuBusy) {
  model_.on_forward = [&] { Take(20); };
  exchange_.on_finish = [&] {
    Take(10);
    gpu_.AwaitIdle();
  };
  ASSERT_TRUE(Train().ok());
  const std::vector<double> busy = times_.busy.GroupMeans(64);
  ASSERT_THAT(busy, SizeIs(4));
  EXPECT_THAT(busy, Each(Ge(0.020)));
  options_.slowdown = *Slowdown::Create({"worker:0:x3"}, /*seed=*/0);
  ASSERT_TRUE(Train().ok());
  ASSERT_THAT(times_.busy.GroupMeans(64), SizeIs(4));
  EXPECT_GE(times_.busy.GroupMeans(64).back(), 3 * 0.020);
}

// Launches are over before: in an NCCL ring Finish hardly takes any time.
TEST_F(TrainerGpuTest, TellsWhenItsGpuArrivedAndWentOn) {
  model_.on_forward = [&] { Take(20); };
  exchange_.on_finish = [&] { Take(30); };
  // Again where a heartbeat has told them.
  for (int i = 0; i < 9 && figures_.records().empty(); ++i) {
    ASSERT_TRUE(Train().ok());
  }
  ASSERT_FALSE(figures_.records().empty());
  int64_t went_on = 0;
  for (const proto::StepRecord& step : figures_.records()) {
    EXPECT_GE(step.went_on_ns() - step.arrived_ns(), 29'000'000);
    if (went_on > 0) {
      EXPECT_GE(step.arrived_ns() - went_on, 18'000'000);
    }
    went_on = step.went_on_ns();
  }
}

}  // namespace
}  // namespace psring
