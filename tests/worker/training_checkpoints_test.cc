// Checkpoints of a training whose directory is taken from it, or is full.
#include "worker/training_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/test_directory.h"
#include "tests/worker/trainer_fixture.h"
#include "worker/checkpoint.h"
#include "worker/checkpoint_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Four steps, with a checkpoint after the second and the last.
class TrainingCheckpointsTest : public TrainerTest {
 protected:
  TrainingCheckpointsTest() : lock_(Lock("the job")) {
    options_.checkpoints.directory = folder_;
    options_.checkpoints.every = 2;
    options_.checkpoints.lock = &*lock_;
  }

  absl::StatusOr<CheckpointLock> Lock(const std::string& who) {
    return CheckpointLock::Take(folder_, /*resume=*/false, who, Now());
  }

  // Calls it between the two checkpoints.
  void Between(const std::function<void()>& event) {
    exchange_.on_finish = [this, event] {
      if (exchange_.step() == 3) event();
    };
  }

  std::string PathOf(int64_t step) const {
    return folder_ + "/" + CheckpointName(step);
  }

  // Another run's of that step, with other weights than this one's.
  void WriteOthers(int64_t step) {
    FlatModel flat =
        *FlatModel::Create(*Layout::Create(ShapesOf(model_), 1 << 20));
    for (float& p : flat.parameters.span()) p = 47;
    FakeExchange exchange(flat, step);
    Progress progress;
    progress.step = step;
    const absl::Status status = WriteCheckpoint(
        folder_,
        {.progress = progress,
         .layout = flat.layout,
         .slot_names = {},
         .extras = {}},
        [&](const std::string& dir) { return exchange.SaveState(dir, Now()); });
    ASSERT_TRUE(status.ok()) << status;
  }

  const std::string folder_ = testing::TestDirectory();
  absl::StatusOr<CheckpointLock> lock_;
};

TEST_F(TrainingCheckpointsTest, AFolderThatVanishesIsMadeAgain) {
  Between([this] { fs::rename(folder_, folder_ + ".moved"); });
  ASSERT_EQ(Train(), absl::OkStatus());
  EXPECT_TRUE(VerifyCheckpoint(PathOf(4)).ok());
  EXPECT_THAT(std::string(Lock("another").status().message()),
              HasSubstr("in use by the job"));
}

// With the lock's file alone, the checkpoints are still this run's.
TEST_F(TrainingCheckpointsTest, ALockThatVanishesIsTakenAgain) {
  Between([this] { fs::remove(folder_ + "/.lock"); });
  ASSERT_EQ(Train(), absl::OkStatus());
  EXPECT_TRUE(fs::exists(PathOf(2)));
  EXPECT_TRUE(VerifyCheckpoint(PathOf(4)).ok());
  EXPECT_THAT(std::string(Lock("another").status().message()),
              HasSubstr("in use by the job"));
}

// Else two jobs would write into one.
TEST_F(TrainingCheckpointsTest, AFolderThatAnotherJobHasTakenIsLeftToIt) {
  std::optional<absl::StatusOr<CheckpointLock>> other;
  Between([&] {
    fs::remove_all(folder_);
    other.emplace(Lock("the other job"));
    EXPECT_TRUE(other->ok()) << other->status();
  });
  EXPECT_THAT(std::string(Train().message()),
              AllOf(HasSubstr("the last checkpoint, of step 4"),
                    HasSubstr("in use by the other job"),
                    HasSubstr("see to " + folder_), Not(HasSubstr("room"))));
  EXPECT_FALSE(fs::exists(PathOf(4)));
}

TEST_F(TrainingCheckpointsTest, ACheckpointOfAnotherRunIsNotTakenForWritten) {
  Between([this] { WriteOthers(4); });
  const absl::Status status = Train();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(PathOf(4) + " is another run's"));
}

TEST_F(TrainingCheckpointsTest, RoomIsTheRemedyOfAFullDiskAlone) {
  struct Case {
    absl::Status failure;
    std::string remedy;
  };
  for (const auto& [failure, remedy] :
       {Case{absl::ResourceExhaustedError("disk full"), "make room in "},
        Case{absl::InternalError("stale"), "see to "}}) {
    exchange_.save_result = failure;
    CapturedLog log;
    EXPECT_THAT(std::string(Train().message()), HasSubstr(remedy + folder_));
    EXPECT_EQ(log.Count("checkpoint is tried: " + remedy + folder_), 1);
  }
}

}  // namespace
}  // namespace psring
