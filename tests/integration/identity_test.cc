// The topology is the only thing that a comparison varies: synchronous training
// over servers ends with the very bits that the ring ends with.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using testing::TestDirectory;

struct Training {
  std::string name;
  int steps;
  std::vector<std::string> flags;
};

void PrintTo(const Training& training, std::ostream* out) {
  *out << training.name;
}

// Buckets so small that every model has several.
Training LeNet() {
  return {"LeNet", 50, {"--model=lenet", "--bucket-mb=0.02"}};
}
Training Mlp() {
  return {"Mlp", 50, {"--model=mlp:784-64-32-10", "--bucket-mb=0.05"}};
}
Training LargeMlp() {
  return {"LargeMlp", 5, {"--model=mlp:784-2048-2048-10", "--bucket-mb=1"}};
}
Training WithOptimizer(const std::string& optimizer,
                       const std::vector<std::string>& flags) {
  Training training = LeNet();
  training.name = optimizer;
  training.flags.push_back("--optimizer=" + optimizer);
  training.flags.insert(training.flags.end(), flags.begin(), flags.end());
  return training;
}

Training Named(const std::string& name, Training training) {
  training.name = name;
  return training;
}

Training Compressed(const std::string& how) {
  return Named(how.substr(0, how.find(':')),
               WithOptimizer("momentum", {"--momentum=0.9", "--compress=" + how,
                                          "--same-host=off"}));
}

class IdentityTest : public ::testing::Test {
 protected:
  // Trains, and gives the last checkpoint's folder.
  std::string Train(const Training& training, LaunchedJob job) {
    const std::string dir = absl::StrCat(folder_, "/", runs_++);
    job.worker_flags = {"--data=digits:train=512,test=8", "--batch-size=8",
                        absl::StrCat("--steps=", training.steps),
                        "--checkpoint-dir=" + dir};
    job.worker_flags.insert(job.worker_flags.end(), training.flags.begin(),
                            training.flags.end());
    const Ran ran = RunLaunch(job);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return CheckpointAt(dir, training.steps);
  }

  std::string TrainRing(const Training& training, int workers) {
    return Train(training, {.mode = "ring", .workers = workers});
  }

  void ExpectServersGive(const std::string& ring, const Training& training,
                         const LaunchedJob& job) {
    const std::string ps = Train(training, job);
    EXPECT_EQ(CheckpointDifference(ring, ps), "")
        << job.workers << " workers, " << job.servers << " servers";
  }

  const std::string folder_ = TestDirectory();
  int runs_ = 0;
};

class IdentityOfSizesTest
    : public IdentityTest,
      public ::testing::WithParamInterface<std::tuple<Training, int>> {};

TEST_P(IdentityOfSizesTest, ServersGiveTheRingsBits) {
  const auto& [training, workers] = GetParam();
  const std::string ring = TrainRing(training, workers);
  for (int servers : {1, 2, 3}) {
    ExpectServersGive(ring, training,
                      {.mode = "ps", .workers = workers, .servers = servers});
  }
}

std::string NameOfSize(
    const ::testing::TestParamInfo<std::tuple<Training, int>>& info) {
  return absl::StrCat(std::get<0>(info.param).name, "With",
                      std::get<1>(info.param), "Workers");
}

INSTANTIATE_TEST_SUITE_P(Convolutions, IdentityOfSizesTest,
                         ::testing::Combine(::testing::Values(LeNet()),
                                            ::testing::Values(1, 2, 3, 4)),
                         NameOfSize);
INSTANTIATE_TEST_SUITE_P(FullyConnected, IdentityOfSizesTest,
                         ::testing::Values(std::make_tuple(Mlp(), 3)),
                         NameOfSize);

class IdentityOfOptimizersTest
    : public IdentityTest,
      public ::testing::WithParamInterface<Training> {};

TEST_P(IdentityOfOptimizersTest, ServersGiveTheRingsBitsAndState) {
  ExpectServersGive(TrainRing(GetParam(), 3), GetParam(),
                    {.mode = "ps", .workers = 3, .servers = 2});
}

INSTANTIATE_TEST_SUITE_P(
    All, IdentityOfOptimizersTest,
    ::testing::Values(
        WithOptimizer("momentum", {"--momentum=0.9", "--weight-decay=1e-4"}),
        WithOptimizer("nesterov", {"--momentum=0.9"}),
        WithOptimizer("adam", {"--lr=0.001"}),
        WithOptimizer("adamw", {"--lr=0.001", "--weight-decay=0.01"}),
        Named("clipped",
              WithOptimizer("momentum", {"--momentum=0.9", "--clip-norm=0.3"})),
        Named("local",
              WithOptimizer("momentum", {"--momentum=0.9", "--local-steps=3"})),
        Compressed("fp16"), Compressed("bf16"), Compressed("int8"),
        Compressed("onebit"), Compressed("topk:0.1")),
    ::testing::PrintToStringParamName());

TEST_F(IdentityTest, ThreadsThatShareAServerChangeNothing) {
  ExpectServersGive(TrainRing(LeNet(), 3), LeNet(),
                    {.mode = "ps",
                     .workers = 3,
                     .servers = 2,
                     .launch_flags = {"--server-flag=--shard-threads=2"}});
}

// Buckets of many segments and slices, in more than one server.
TEST_F(IdentityTest, LargeModelsGiveTheSameBits) {
  const std::string ring = TrainRing(LargeMlp(), 3);
  ExpectServersGive(ring, LargeMlp(),
                    {.mode = "ps", .workers = 3, .servers = 2});
}

// That equal bits mean something.
TEST_F(IdentityTest, AnotherNumberOfStepsGivesOtherBits) {
  Training shorter = LeNet();
  shorter.steps = 49;
  EXPECT_NE(CheckpointDifference(TrainRing(LeNet(), 2), TrainRing(shorter, 2)),
            "");
}

}  // namespace
}  // namespace psring
