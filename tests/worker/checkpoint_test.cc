#include "worker/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint_directory.h"
#include "worker/own_checkpoints.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = absl::StrCat(::testing::TempDir(), "/", info->name());
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    proto::TensorShape shape;
    shape.set_name("w");
    shape.add_shape(100);
    layout_ = *Layout::Create({shape}, 1 << 20);
    values_.assign(layout_->num_elements(), 1.5f);
  }

  CheckpointContents Contents(int64_t step) const {
    Progress progress;
    progress.step = step;
    progress.updates = 3 * step;
    progress.model = model_;
    return {.progress = progress,
            .layout = *layout_,
            .slot_names = {"momentum_buffer"},
            .extras = {}};
  }

  // Of the values from `begin` on.
  auto WriteState(const std::string& dir, int64_t begin = 0) {
    const float* slot = values_.data();
    return WriteStateRange(dir, *layout_, Contents(1).slot_names,
                           {begin, layout_->num_elements()}, values_.data(),
                           {slot});
  }

  absl::Status Write(int64_t step) {
    return WriteCheckpoint(
        directory_, Contents(step),
        [&](const std::string& dir) { return WriteState(dir); }, own_);
  }

  std::string Latest() const { return CheckpointsIn(directory_)->back().path; }

  std::string directory_;
  std::string model_ = "m";
  OwnCheckpoints own_;
  std::optional<Layout> layout_;
  std::vector<float> values_;
};

TEST_F(CheckpointTest, TheNewestIsFoundAndVerified) {
  ASSERT_TRUE(Write(9).ok());
  ASSERT_TRUE(Write(10).ok());
  auto progress = VerifyCheckpoint(Latest());
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(progress->step, 10);
  EXPECT_EQ(progress->updates, 30);
  EXPECT_EQ(progress->model, "m");
}

TEST_F(CheckpointTest, OnlyNamesOfCheckpointsCount) {
  ASSERT_TRUE(Write(9).ok());
  for (const char* name : {"/step-00000010.bak", "/step-", "/step-1x"}) {
    fs::create_directories(directory_ + name);
  }
  std::ofstream(directory_ + "/step-00000011") << "a file";
  EXPECT_EQ(Latest(), directory_ + "/step-00000009");
}

TEST_F(CheckpointTest, StepsOfAnyNumberOfDigitsHaveTheirOrder) {
  ASSERT_TRUE(Write(99'999'999).ok());
  ASSERT_TRUE(Write(100'000'000).ok());
  EXPECT_EQ(Latest(), directory_ + "/step-100000000");
}

TEST_F(CheckpointTest, WhatAnotherJobIsWritingStays) {
  const std::string other = directory_ + "/.incomplete-step-00000009";
  fs::create_directories(other);
  ASSERT_TRUE(Write(9).ok());
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(CheckpointTest, ADamagedOneOfTheSameStepGivesWay) {
  ASSERT_TRUE(Write(9).ok());
  const std::string checkpoint = Latest();
  fs::resize_file(checkpoint + "/model.safetensors", 200);
  ASSERT_TRUE(Write(9).ok());
  EXPECT_TRUE(VerifyCheckpoint(checkpoint).ok());
  EXPECT_EQ(fs::file_size(checkpoint + ".damaged/model.safetensors"), 200);
}

TEST_F(CheckpointTest, EveryDamagedOneOfAStepStays) {
  for (const int bytes : {200, 201, 202, 203}) {
    ASSERT_TRUE(Write(9).ok());
    fs::resize_file(Latest() + "/model.safetensors", bytes);
  }
  ASSERT_TRUE(Write(9).ok());
  const std::string aside = Latest() + ".damaged";
  EXPECT_EQ(fs::file_size(aside + "/model.safetensors"), 200);
  EXPECT_EQ(fs::file_size(aside + "-2/model.safetensors"), 201);
  EXPECT_EQ(fs::file_size(aside + "-3/model.safetensors"), 202);
  EXPECT_EQ(fs::file_size(aside + "-4/model.safetensors"), 203);
}

TEST_F(CheckpointTest, ALinkToNowhereGivesWay) {
  const std::string path = directory_ + "/step-00000009";
  fs::create_symlink(directory_ + "/gone", path);
  ASSERT_EQ(Write(9), absl::OkStatus());
  EXPECT_TRUE(VerifyCheckpoint(path).ok());
  EXPECT_TRUE(fs::is_symlink(path + ".damaged"));
}

TEST_F(CheckpointTest, OneOfTheSameStepIsWrittenOnlyWhereItIsThisRuns) {
  ASSERT_TRUE(Write(9).ok());
  const absl::Status status = Write(9);
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(Latest() + " is another run's"));
  own_.AddAllIn(directory_);
  EXPECT_EQ(Write(9), absl::OkStatus());
  // Wherever it lies: but not what has its name.
  const std::string moved = directory_ + "/step-00000010";
  fs::rename(Latest(), moved);
  EXPECT_FALSE(own_.IsOthers(moved));
  values_[0] = 2;
  ASSERT_TRUE(Write(9).ok());
  EXPECT_TRUE(own_.IsOthers(directory_ + "/step-00000009"));
  EXPECT_FALSE(own_.IsOthers(directory_ + "/none"));
}

// It may be whole. A link to itself cannot be opened, by root either.
TEST_F(CheckpointTest, OneOfTheSameStepThatCannotBeReadStays) {
  ASSERT_TRUE(Write(9).ok());
  const std::string manifest = Latest() + "/manifest.json";
  fs::remove(manifest);
  fs::create_symlink(manifest, manifest);
  EXPECT_THAT(std::string(Write(9).message()),
              HasSubstr("manifest.json: Too many levels"));
  EXPECT_TRUE(fs::exists(Latest() + "/model.safetensors"));
}

// What reads this process's memory at address 0 gets EIO.
TEST_F(CheckpointTest, AReadErrorIsNotTheEndOfTheFile) {
  ASSERT_TRUE(Write(1).ok());
  const std::string checkpoint = Latest();
  fs::remove(checkpoint + "/model.safetensors");
  fs::create_symlink("/proc/self/mem", checkpoint + "/model.safetensors");
  EXPECT_THAT(
      std::string(VerifyCheckpoint(checkpoint).status().message()),
      AllOf(HasSubstr("model.safetensors"), HasSubstr("Input/output error")));
}

TEST_F(CheckpointTest, EveryFlippedByteIsFound) {
  ASSERT_TRUE(Write(1).ok());
  const std::string checkpoint = Latest();
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const auto size = static_cast<int64_t>(fs::file_size(entry.path()));
    for (int64_t at = 0; at < size; ++at) {
      std::fstream file(entry.path(), std::ios::in | std::ios::out);
      file.seekg(at);
      const char byte = static_cast<char>(file.get());
      file.seekp(at);
      file.put(static_cast<char>(byte ^ 1));
      file.flush();
      const absl::Status status = VerifyCheckpoint(checkpoint).status();
      ASSERT_FALSE(status.ok()) << entry.path() << " byte " << at;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(entry.path().filename()));
      file.seekp(at);
      file.put(byte);
    }
  }
  EXPECT_TRUE(VerifyCheckpoint(checkpoint).ok());
}

TEST_F(CheckpointTest, AFileOfAnotherSizeIsFound) {
  ASSERT_TRUE(Write(1).ok());
  const std::string checkpoint = Latest();
  fs::resize_file(checkpoint + "/model.safetensors", 200);
  EXPECT_THAT(std::string(VerifyCheckpoint(checkpoint).status().message()),
              HasSubstr("200 bytes"));
  fs::resize_file(checkpoint + "/model.safetensors", 2000);
  EXPECT_THAT(std::string(VerifyCheckpoint(checkpoint).status().message()),
              HasSubstr("2000 bytes where the manifest says "));
}

// It is read a MiB at a time.
TEST_F(CheckpointTest, ALargeModelIsVerifiedToItsEnd) {
  proto::TensorShape shape;
  shape.set_name("w");
  shape.add_shape(600'000);
  layout_ = *Layout::Create({shape}, 1 << 20);
  values_.assign(layout_->num_elements(), 1.5f);
  ASSERT_EQ(Write(1), absl::OkStatus());
  EXPECT_TRUE(VerifyCheckpoint(Latest()).ok());
  std::fstream file(Latest() + "/model.safetensors",
                    std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  file.put('x');
  file.close();
  EXPECT_TRUE(absl::IsDataLoss(VerifyCheckpoint(Latest()).status()));
}

TEST_F(CheckpointTest, AFailedWriteLeavesNoCheckpoint) {
  EXPECT_FALSE(WriteCheckpoint(directory_, Contents(1), [](const std::string&) {
                 return absl::InternalError("disk full");
               }).ok());
  EXPECT_TRUE(CheckpointsIn(directory_)->empty());
}

// Another writer's page, say, of a file system that several hosts share.
TEST_F(CheckpointTest, DamageBehindTheWritersBackIsNotCertified) {
  const absl::Status status =
      WriteCheckpoint(directory_, Contents(1), [&](const std::string& dir) {
        auto saved = WriteState(dir);
        std::fstream file(dir + "/model.safetensors",
                          std::ios::in | std::ios::out);
        file.seekp(10);
        file.put('x');
        return saved;
      });
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("checksum")));
  EXPECT_TRUE(CheckpointsIn(directory_)->empty());
}

TEST_F(CheckpointTest, WhatNobodyHasWrittenIsNotCertified) {
  const absl::Status status = WriteCheckpoint(
      directory_, Contents(1),
      [&](const std::string& dir) { return WriteState(dir, 32); });
  EXPECT_THAT(std::string(status.message()), HasSubstr("written by nobody"));
}

TEST_F(CheckpointTest, WhatTwoHaveWrittenIsNotCertified) {
  const absl::Status status =
      WriteCheckpoint(directory_, Contents(1), [&](const std::string& dir) {
        auto saved = WriteState(dir);
        if (saved.ok()) saved->MergeFrom(proto::SavedState(*saved));
        return saved;
      });
  EXPECT_THAT(std::string(status.message()), HasSubstr("written twice"));
  EXPECT_TRUE(CheckpointsIn(directory_)->empty());
}

TEST_F(CheckpointTest, AnyNumberOfWritersMakesTheSameCheckpoint) {
  ASSERT_TRUE(Write(1).ok());
  const CheckpointContents contents = Contents(2);
  const absl::Status status =
      WriteCheckpoint(directory_, contents, [&](const std::string& dir) {
        proto::SavedState all;
        for (const Range range : {Range{48, layout_->num_elements()},
                                  Range{0, 16}, Range{16, 48}}) {
          const float* values = values_.data() + range.begin;
          all.MergeFrom(*WriteStateRange(dir, *layout_, contents.slot_names,
                                         range, values, {values}));
        }
        return absl::StatusOr<proto::SavedState>(all);
      });
  ASSERT_TRUE(status.ok()) << status;
  const auto one = ReadManifest(directory_ + "/step-00000001");
  const auto many = ReadManifest(directory_ + "/step-00000002");
  ASSERT_TRUE(one.ok() && many.ok());
  EXPECT_EQ(one->files.at("model.safetensors").crc,
            many->files.at("model.safetensors").crc);
  EXPECT_EQ(one->files.at("optimizer.safetensors").crc,
            many->files.at("optimizer.safetensors").crc);
}

TEST_F(CheckpointTest, AFailedWriteLeavesNothing) {
  ASSERT_TRUE(Write(1).ok());
  EXPECT_FALSE(WriteCheckpoint(directory_, Contents(3), [](const std::string&) {
                 return absl::InternalError("disk full");
               }).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1);
}

TEST_F(CheckpointTest, WithoutItsManifestItIsNotWritten) {
  model_ = "\xff";  // no UTF-8
  const absl::Status status = Write(1);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(fs::is_empty(directory_));
}

}  // namespace
}  // namespace psring
