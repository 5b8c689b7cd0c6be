#include "worker/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"

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
    proto::TensorShape shape;
    shape.set_name("w");
    shape.add_shape(100);
    layout_ = *Layout::Create({shape}, 1 << 20);
    values_.assign(layout_->num_elements(), 1.5f);
  }

  absl::Status Write(int64_t step) {
    Progress progress;
    progress.step = step;
    progress.model = "m";
    CheckpointContents contents{.progress = progress,
                                .layout = *layout_,
                                .slot_names = {"momentum_buffer"},
                                .extras = {}};
    return WriteCheckpoint(directory_, contents, [&](const std::string& dir) {
      const float* slot = values_.data();
      return WriteStateRange(dir, *layout_, contents.slot_names,
                             {0, layout_->num_elements()}, values_.data(),
                             {slot});
    });
  }

  std::string directory_;
  std::optional<Layout> layout_;
  std::vector<float> values_;
};

TEST_F(CheckpointTest, TheNewestIsFoundAndVerified) {
  ASSERT_TRUE(PrepareCheckpointDirectory(directory_, false).ok());
  ASSERT_TRUE(Write(9).ok());
  ASSERT_TRUE(Write(10).ok());
  auto latest = LatestCheckpoint(directory_);
  ASSERT_TRUE(latest.ok());
  auto progress = VerifyCheckpoint(*latest);
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(progress->step, 10);
  EXPECT_EQ(progress->model, "m");
}

TEST_F(CheckpointTest, EveryFlippedByteIsFound) {
  ASSERT_TRUE(PrepareCheckpointDirectory(directory_, false).ok());
  ASSERT_TRUE(Write(1).ok());
  const std::string checkpoint = *LatestCheckpoint(directory_);
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const auto size = static_cast<int64_t>(fs::file_size(entry.path()));
    for (int64_t at = 0; at < size; at += 7) {
      std::fstream file(entry.path(), std::ios::in | std::ios::out);
      file.seekg(at);
      const char byte = static_cast<char>(file.get());
      file.seekp(at);
      file.put(static_cast<char>(byte ^ 1));
      file.flush();
      const absl::Status status = VerifyCheckpoint(checkpoint).status();
      ASSERT_FALSE(status.ok()) << entry.path() << " byte " << at;
      EXPECT_THAT(
          std::string(status.message()),
          AllOf(HasSubstr(entry.path().filename()), HasSubstr("Remove")));
      file.seekp(at);
      file.put(byte);
    }
  }
  EXPECT_TRUE(VerifyCheckpoint(checkpoint).ok());
}

TEST_F(CheckpointTest, ATruncatedFileIsFound) {
  ASSERT_TRUE(PrepareCheckpointDirectory(directory_, false).ok());
  ASSERT_TRUE(Write(1).ok());
  const std::string checkpoint = *LatestCheckpoint(directory_);
  fs::resize_file(checkpoint + "/model.safetensors", 200);
  EXPECT_THAT(std::string(VerifyCheckpoint(checkpoint).status().message()),
              HasSubstr("200 bytes"));
}

TEST_F(CheckpointTest, AFailedWriteLeavesNoCheckpoint) {
  ASSERT_TRUE(PrepareCheckpointDirectory(directory_, false).ok());
  CheckpointContents contents{.progress = Progress(),
                              .layout = *layout_,
                              .slot_names = {},
                              .extras = {}};
  EXPECT_FALSE(WriteCheckpoint(directory_, contents, [](const std::string&) {
                 return absl::InternalError("disk full");
               }).ok());
  EXPECT_EQ(LatestCheckpoint(directory_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(CheckpointTest, AnEarlierRunIsNotOverwritten) {
  ASSERT_TRUE(PrepareCheckpointDirectory(directory_, false).ok());
  ASSERT_TRUE(Write(5).ok());
  const absl::Status status = PrepareCheckpointDirectory(directory_, false);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step-00000005"), HasSubstr("--resume")));
  EXPECT_TRUE(PrepareCheckpointDirectory(directory_, true).ok());
}

TEST_F(CheckpointTest, ADirectoryThatCannotBeMadeIsNamed) {
  std::ofstream(directory_) << "a file";
  const absl::Status status =
      PrepareCheckpointDirectory(directory_ + "/below", false);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--checkpoint-dir"), HasSubstr("below")));
}

}  // namespace
}  // namespace psring
