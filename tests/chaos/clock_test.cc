// Wall clocks that somebody sets while a job runs: nobody minds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/integration/hand_job.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSteps = 2000;

class ClockTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Trains, and gives the last checkpoint's folder. The clock of each process
  // of `jumping` jumps.
  std::string Train(const std::string& dir,
                    const std::vector<std::string>& jumping) {
    HandJobOptions options{.mode = GetParam(), .servers = 2};
    options.worker_flags.back() = absl::StrCat("--steps=", kSteps);
    options.worker_flags.push_back("--checkpoint-dir=" + dir);
    for (const std::string& name : jumping) {
      // Not all in step with each other.
      options.env[name] = {
          {"LD_PRELOAD", "tests/chaos/libclock_jumps.so"},
          {"PSRING_CLOCK_JUMPS", absl::StrCat(20 + options.env.size())}};
    }
    HandJob job(std::move(options));
    job.StartAll();
    job.ExpectAllEndWell();
    for (const std::string& name : jumping) {
      const std::string output = job[name].Output();
      EXPECT_THAT(output, HasSubstr("the wall clock jumped "));
      // Ten at least: two digits.
      EXPECT_THAT(output, Not(::testing::ContainsRegex("jumped . times")));
    }
    return CheckpointAt(dir, kSteps);
  }

  const std::string folder_ = testing::TestDirectory();
};

TEST_P(ClockTest, JumpsOfAnyProcessChangeNothing) {
  const std::vector<std::string> names =
      HandJob({.mode = GetParam(), .servers = 2}).names();
  const std::string calm = Train(folder_ + "/calm", {});
  for (const std::string& name : names) {
    EXPECT_EQ(CheckpointDifference(calm, Train(folder_ + "/" + name, {name})),
              "")
        << name;
  }
  EXPECT_EQ(CheckpointDifference(calm, Train(folder_ + "/all", names)), "");
}

INSTANTIATE_TEST_SUITE_P(Modes, ClockTest, ::testing::Values("ps", "ring"));

}  // namespace
}  // namespace psring
