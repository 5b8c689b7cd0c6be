#include "worker/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/clock.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TestDirectory;
using testing::WriteFile;

class CheckpointDirectoryTest : public ::testing::Test {
 protected:
  void Make(const std::string& name) {
    fs::create_directories(folder_ + "/" + name);
    WriteFile(folder_ + "/" + name + "/model.safetensors", "bytes");
  }

  absl::StatusOr<CheckpointLock> Take(bool resume, const std::string& who) {
    return CheckpointLock::Take(folder_, resume, who, Now());
  }

  // Without the lock's.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (name != ".lock") names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  const std::string folder_ = TestDirectory();
};

TEST_F(CheckpointDirectoryTest, ListsCheckpointsByTheirSteps) {
  for (const char* name : {"step-100000000", "step-99999999", "step-00000007",
                           "step-00000009.damaged", "step-x", "step-"}) {
    Make(name);
  }
  WriteFile(folder_ + "/step-00000008", "a file");
  const auto found = CheckpointsIn(folder_);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<int64_t> steps;
  for (const CheckpointEntry& entry : *found) steps.push_back(entry.step);
  EXPECT_THAT(steps, ElementsAre(7, 99'999'999, 100'000'000));
  EXPECT_EQ(found->front().path, folder_ + "/" + CheckpointName(7));
  EXPECT_THAT(*CheckpointsIn(folder_ + "/none"), IsEmpty());
}

TEST_F(CheckpointDirectoryTest, AFolderThatCannotBeListedIsAnError) {
  WriteFile(folder_ + "/file", "no folder");
  const absl::Status status = CheckpointsIn(folder_ + "/file").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ + "/file"));
}

TEST_F(CheckpointDirectoryTest, KeepsTheNewestUpToTheStep) {
  for (const char* name : {"step-00000001", "step-00000002", "step-00000003",
                           "step-00000004", "step-00000009", "step-old"}) {
    Make(name);
  }
  RemoveOldCheckpoints(folder_, 4, 0);
  EXPECT_EQ(Names().size(), 6u);
  RemoveOldCheckpoints(folder_, 4, 2);
  EXPECT_THAT(Names(), ElementsAre("step-00000003", "step-00000004",
                                   "step-00000009", "step-old"));
}

TEST_F(CheckpointDirectoryTest, OneJobHoldsItAtATime) {
  auto first = Take(false, "the job of worker 0 (host a, pid 4711)");
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = Take(false, "another").status();
  EXPECT_TRUE(absl::IsUnavailable(second));
  EXPECT_THAT(std::string(second.message()),
              AllOf(HasSubstr(folder_), HasSubstr("host a, pid 4711")));
  first = absl::CancelledError("ended");
  EXPECT_TRUE(Take(true, "the next").ok());
}

TEST_F(CheckpointDirectoryTest, WhatDeadJobsHaveLeftGoes) {
  Make(".incomplete-step-00000003");
  Make(".incomplete-step-00000003-0badcafe");
  WriteFile(folder_ + "/.psring-probe-abcdef", "");
  Make("step-00000002");
  const auto lock = Take(true, "a job");
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_THAT(Names(), ElementsAre("step-00000002"));
}

TEST_F(CheckpointDirectoryTest, WhatALivingJobIsWritingStays) {
  const auto lock = Take(true, "a job");
  ASSERT_TRUE(lock.ok()) << lock.status();
  Make(".incomplete-step-00000003-0badcafe");
  EXPECT_FALSE(Take(true, "another").ok());
  EXPECT_THAT(Names(), ElementsAre(".incomplete-step-00000003-0badcafe"));
}

TEST_F(CheckpointDirectoryTest, AnEarlierRunIsNotOverwritten) {
  Make("step-00000005");
  const absl::Status status = Take(false, "a job").status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step-00000005"), HasSubstr("--resume")));
  EXPECT_TRUE(Take(true, "a job").ok());
}

TEST_F(CheckpointDirectoryTest, AFolderThatCannotBeMadeIsNamed) {
  WriteFile(folder_ + "/file", "no folder");
  const absl::Status status =
      CheckpointLock::Take(folder_ + "/file/below", false, "a job", Now())
          .status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--checkpoint-dir"), HasSubstr("below")));
}

}  // namespace
}  // namespace psring
