#include "worker/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TestDirectory;
using testing::WriteFile;

// Of root, whom no permission stops; while it lives, on this thread.
class NoPrivileges {
 public:
  NoPrivileges() {
    EXPECT_EQ(syscall(SYS_capget, &header_, before_), 0);
    __user_cap_data_struct none[2] = {before_[0], before_[1]};
    for (auto& half : none) half.effective = 0;
    EXPECT_EQ(syscall(SYS_capset, &header_, none), 0);
  }
  ~NoPrivileges() { EXPECT_EQ(syscall(SYS_capset, &header_, before_), 0); }

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2] = {};
};

class CheckpointDirectoryTest : public ::testing::Test {
 protected:
  void Make(const std::string& name) {
    fs::create_directories(folder_ + "/" + name);
    WriteFile(folder_ + "/" + name + "/model.safetensors", "bytes");
  }

  absl::StatusOr<CheckpointLock> Take(bool resume, const std::string& who) {
    return CheckpointLock::Take(folder_, resume, who, Now());
  }

  // `lock` as before a checkpoint, of which those at `others` are another
  // run's.
  static absl::Status Keep(absl::StatusOr<CheckpointLock>& lock,
                           const std::set<std::string>& others = {}) {
    return lock->Keep(
        [&](const std::string& path) { return others.count(path) > 0; });
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
                           "step-00000009.damaged", "step-x", "step-",
                           "step-+0000001", "step--0000001"}) {
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
  const auto next = Take(true, "the next");
  EXPECT_TRUE(next.ok()) << next.status();
  EXPECT_THAT(std::string(Take(true, "another").status().message()),
              HasSubstr("in use by the next. Two jobs"));
}

// It would resume from what the other one still writes.
TEST_F(CheckpointDirectoryTest, ALivingJobsCheckpointsAreNoEarlierRuns) {
  auto first = Take(false, "the job of worker 0 (host a, pid 4711)");
  ASSERT_TRUE(first.ok()) << first.status();
  Make("step-00000001");
  const absl::Status second = Take(false, "another").status();
  EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  EXPECT_THAT(std::string(second.message()),
              AllOf(HasSubstr("host a, pid 4711"), HasSubstr("Two jobs cannot"),
                    Not(HasSubstr("Resume"))));
  first = absl::CancelledError("ended");
  EXPECT_TRUE(absl::IsAlreadyExists(Take(false, "another").status()));
}

TEST_F(CheckpointDirectoryTest, WhoWaitsLocksTheFileThatIsThereInTheEnd) {
  auto first = Take(true, "the first");
  const auto second =
      CheckpointLock::Take(folder_, true, "the second", Soon(), [&] {
        fs::remove(folder_ + "/.lock");
        first = absl::CancelledError("ended");
        return absl::OkStatus();
      });
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(std::string(Take(true, "the third").status().message()),
              HasSubstr("in use by the second"));
}

TEST_F(CheckpointDirectoryTest, WhatAJobLeavesToOneThatWaitsIsAnEarlierRuns) {
  auto first = Take(false, "the first");
  const auto second =
      CheckpointLock::Take(folder_, false, "the second", Soon(), [&] {
        if (first.ok()) Make("step-00000001");
        first = absl::CancelledError("ended");
        return absl::OkStatus();
      });
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
}

TEST_F(CheckpointDirectoryTest, WhoWaitsMayBeStopped) {
  const auto first = Take(true, "the first");
  const auto second =
      CheckpointLock::Take(folder_, true, "the second", Soon(),
                           [] { return absl::CancelledError("stopped"); });
  EXPECT_TRUE(absl::IsCancelled(second.status())) << second.status();
}

TEST_F(CheckpointDirectoryTest, AFolderThatWasRemovedIsMadeAndLockedAgain) {
  auto lock = Take(false, "the first");
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ(Keep(lock), absl::OkStatus());
  for (const std::string& removed : {folder_, folder_ + "/.lock"}) {
    fs::remove_all(removed);
    EXPECT_EQ(Keep(lock), absl::OkStatus());
    EXPECT_THAT(std::string(Take(true, "another").status().message()),
                HasSubstr("in use by the first"));
  }
}

TEST_F(CheckpointDirectoryTest, AFolderThatAnotherJobHasTakenIsLeftToIt) {
  auto lock = Take(false, "the first");
  ASSERT_TRUE(lock.ok()) << lock.status();
  fs::rename(folder_, folder_ + ".moved");
  auto other = Take(false, "the other");
  ASSERT_TRUE(other.ok()) << other.status();
  const absl::Status in_use = Keep(lock);
  EXPECT_EQ(in_use.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(in_use.message()),
              AllOf(HasSubstr(folder_), HasSubstr("in use by the other"),
                    HasSubstr("Two jobs cannot write")));
  Make("step-00000003");
  other = absl::CancelledError("ended");
  const std::string theirs = folder_ + "/step-00000003";
  const absl::Status holds = Keep(lock, {theirs});
  EXPECT_EQ(holds.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(holds.message()),
      AllOf(HasSubstr(theirs + " is another run's"), HasSubstr("the other")));
  // What it has refused is not its own at the next try.
  EXPECT_FALSE(Keep(lock, {theirs}).ok());
  fs::remove_all(folder_);
  fs::rename(folder_ + ".moved", folder_);
  EXPECT_EQ(Keep(lock), absl::OkStatus());
}

// Of a whole checkpoint that another user has made nothing can be removed.
TEST_F(CheckpointDirectoryTest, WhatCannotBeRemovedKeepsItsName) {
  Make("step-00000001");
  Make("step-00000002");
  const std::string theirs = folder_ + "/step-00000001";
  fs::permissions(theirs, fs::perms::owner_read | fs::perms::owner_exec);
  {
    const NoPrivileges none;
    RemoveOldCheckpoints(folder_, 2, 1);
  }
  EXPECT_THAT(Names(), ElementsAre("step-00000001", "step-00000002"));
  fs::permissions(theirs, fs::perms::owner_all);
  RemoveOldCheckpoints(folder_, 2, 1);
  EXPECT_THAT(Names(), ElementsAre("step-00000002"));
}

TEST_F(CheckpointDirectoryTest, ALockThatThisUserMayNotWriteHasTheRemedy) {
  testing::WriteFile(folder_ + "/.lock", "another user's job");
  fs::permissions(folder_ + "/.lock", fs::perms::owner_read);
  const NoPrivileges none;
  const absl::Status status = Take(false, "a job").status();
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("--checkpoint-dir: "), HasSubstr(folder_ + "/.lock"),
            HasSubstr("Another user's job has made it: let this user write it, "
                      "or choose another directory")));
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
