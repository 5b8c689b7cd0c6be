// Checkpoints that take longer than a step may wait for another process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/integration/hand_job.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::ContainsRegex;

constexpr int kSteps = 60;

class SlowDiskTest : public ::testing::TestWithParam<std::string> {
 protected:
  HandJobOptions Options(const Flags& flags, const Flags& cluster_flags) {
    return {.mode = GetParam(),
            .worker_flags = flags,
            .cluster_flags = cluster_flags};
  }

  // To a process whose writes to the disk each take so much longer, or with
  // PSRING_SLOW_READS its reads.
  static std::vector<std::pair<std::string, std::string>> SlowBy(
      const std::string& milliseconds,
      const std::string& variable = "PSRING_SLOW_DISK") {
    return {{"LD_PRELOAD", "tests/chaos/libslow_disk.so"},
            {variable, milliseconds}};
  }

  // Of whoever writes the optimizer's state.
  std::string Writer() const {
    return GetParam() == "ps" ? "ps 0" : "worker 0";
  }

  const std::string dir_ = testing::TestDirectory();
};

// Whoever waits for a checkpoint waits for twice three seconds; the writer's
// part takes more.
TEST_P(SlowDiskTest, OthersWaitForACheckpointAsLongAsSomebodyWritesIt) {
  Flags flags = SmallTraining(kSteps, dir_);
  flags.push_back("--checkpoint-every=40");
  HandJobOptions options = Options(flags, {"--step-timeout=3"});
  options.env[Writer()] = SlowBy("3200");
  HandJob job(options);
  job.StartAll();
  job.ExpectAllEndWell();
  // Two files at least, at two checkpoints.
  EXPECT_THAT(job[Writer()].Output(),
              ContainsRegex("the disk was slow ([4-9]|1[0-9]) times"));
  EXPECT_EQ(CheckpointDifference(CheckpointAt(dir_, kSteps),
                                 UndisturbedCheckpoint(kSteps)),
            "");
}

TEST_P(SlowDiskTest, OthersWaitForACheckpointAsLongAsSomebodyReadsIt) {
  Flags flags = SmallTraining(20, dir_);
  {
    HandJob first(Options(flags, {}));
    first.StartAll();
    first.ExpectAllEndWell();
  }
  flags = SmallTraining(kSteps, dir_);
  flags.push_back("--resume");
  HandJobOptions options = Options(flags, {"--step-timeout=3"});
  options.env["worker 0"] = SlowBy("1200", "PSRING_SLOW_READS");
  HandJob job(options);
  job.StartAll();
  job.ExpectAllEndWell();
  // Two files to verify, then each of four parameters.
  EXPECT_THAT(job["worker 0"].Output(),
              ContainsRegex("the disk was slow ([6-9]|[1-9][0-9]) times"));
  EXPECT_EQ(CheckpointDifference(CheckpointAt(dir_, kSteps),
                                 UndisturbedCheckpoint(kSteps)),
            "");
}

// The last one, for which the other workers, who have done their part, wait as
// they leave.
TEST_P(SlowDiskTest, ADiskThatHangsEndsTheJobWithItsWritersName) {
  HandJobOptions options =
      Options(SmallTraining(kSteps, dir_), {"--progress-timeout=4"});
  options.env[Writer()] = SlowBy("1000000");
  HandJob job(options);
  job.StartAll();
  job.ExpectOthersFail(Writer(), {Writer() + " (", "hangs: at step "});
}

INSTANTIATE_TEST_SUITE_P(Modes, SlowDiskTest, ::testing::Values("ps", "ring"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace psring
