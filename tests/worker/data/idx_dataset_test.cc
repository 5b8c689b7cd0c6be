#include "worker/data/idx_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "tests/testing/test_directory.h"
#include "tests/worker/data/data_files.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Gzip;
using ::testing::HasSubstr;
using testing::Idx;
using testing::ReadFile;
using testing::TestDirectory;
using testing::WriteFile;

// A folder with a small data set, into which each test brings its own error.
class IdxDatasetTest : public ::testing::Test {
 protected:
  IdxDatasetTest() { testing::WriteTinyMnist(folder_); }

  void ExpectError(absl::StatusCode code,
                   const ::testing::Matcher<std::string>& message) {
    const auto loaded = LoadIdx(folder_);
    EXPECT_EQ(loaded.status().code(), code);
    EXPECT_THAT(std::string(loaded.status().message()), message);
  }

  const std::string folder_ = TestDirectory();
  const std::string images_ = folder_ + "/train-images-idx3-ubyte";
  const std::string labels_ = folder_ + "/train-labels-idx1-ubyte";
};

TEST_F(IdxDatasetTest, ReadsImagesAndLabelsOfBothParts) {
  const auto loaded = LoadIdx(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Dataset& train = loaded->train;
  EXPECT_EQ(train.size(), 3);
  EXPECT_EQ(train.shape, (ImageShape{1, 2, 3, 10}));
  EXPECT_THAT(train.Image(2), ElementsAre(20, 21, 22, 23, 24, 25));
  EXPECT_THAT(train.labels, ElementsAre(9, 0, 5));
  const Dataset& test = loaded->test;
  EXPECT_EQ(test.size(), 2);
  EXPECT_THAT(test.Image(1), ElementsAre(110, 111, 112, 113, 114, 115));
  EXPECT_THAT(test.labels, ElementsAre(1, 2));
}

TEST_F(IdxDatasetTest, ReadsCompressedFilesToo) {
  WriteFile(images_ + ".gz", Gzip(ReadFile(images_)));
  std::filesystem::remove(images_);
  const auto loaded = LoadIdx(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<uint8_t>& pixels = loaded->train.pixels;
  EXPECT_EQ(std::accumulate(pixels.begin(), pixels.end(), 0), 225);
}

TEST_F(IdxDatasetTest, ListsWhatItTriedForAMissingFile) {
  std::filesystem::remove(labels_);
  ExpectError(absl::StatusCode::kNotFound,
              AllOf(HasSubstr(labels_), HasSubstr(labels_ + ".gz")));
}

TEST_F(IdxDatasetTest, ReportsAFileThatIsCutShort) {
  const std::string whole = ReadFile(images_);
  for (size_t size :
       {size_t{0}, size_t{3}, size_t{15}, size_t{16}, whole.size() - 1}) {
    WriteFile(images_, whole.substr(0, size));
    ExpectError(absl::StatusCode::kDataLoss, HasSubstr(images_));
  }
}

TEST_F(IdxDatasetTest, ReportsACompressedFileThatIsCutShort) {
  const std::string packed = Gzip(ReadFile(images_));
  std::filesystem::remove(images_);
  WriteFile(images_ + ".gz", packed.substr(0, packed.size() - 4));
  ExpectError(absl::StatusCode::kDataLoss,
              AllOf(HasSubstr(images_ + ".gz"), HasSubstr("cut short")));
}

TEST_F(IdxDatasetTest, NamesTheMagicNumbersFoundAndExpected) {
  WriteFile(images_, ReadFile(labels_) + std::string(20, '\0'));
  ExpectError(absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr(images_), HasSubstr("0x00000801"),
                    HasSubstr("0x00000803")));
}

TEST_F(IdxDatasetTest, ReportsAHeaderWhoseSizesTheFileDoesNotHave) {
  const std::string pixels(18, 'x');
  for (const std::vector<uint32_t>& sizes :
       {std::vector<uint32_t>{4, 2, 3},
        {2, 2, 3},
        {0xffffffff, 0xffffffff, 0xffffffff},
        {1u << 31, 1u << 31, 4}}) {
    WriteFile(images_, Idx(0x803, sizes, pixels));
    ExpectError(absl::StatusCode::kDataLoss,
                AllOf(HasSubstr(images_), HasSubstr("18 bytes follow")));
  }
}

TEST_F(IdxDatasetTest, ReportsAnEmptyFile) {
  WriteFile(images_, Idx(0x803, {3, 0, 3}, ""));
  ExpectError(absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr(images_), HasSubstr("empty")));
}

TEST_F(IdxDatasetTest, ReportsImagesAndLabelsThatDifferInNumber) {
  WriteFile(labels_, Idx(0x801, {4}, std::string(4, '\1')));
  ExpectError(absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr(images_ + " holds 3 images"),
                    HasSubstr(labels_ + " 4 labels")));
}

TEST_F(IdxDatasetTest, ReportsALabelAboveNine) {
  WriteFile(labels_, Idx(0x801, {3}, "\x01\xff\x01"));
  ExpectError(absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr(labels_), HasSubstr("label 1 is 255")));
}

TEST_F(IdxDatasetTest, ReportsPartsWhoseImagesDifferInSize) {
  WriteFile(folder_ + "/t10k-images-idx3-ubyte",
            Idx(0x803, {2, 3, 2}, std::string(12, 'x')));
  ExpectError(absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr(folder_), HasSubstr("2x3"), HasSubstr("3x2")));
}

// Real MNIST or a part of it: $PSRING_MNIST_DIR, or the folder beside the tree.
std::string RealMnist() {
  const char* folder = std::getenv("PSRING_MNIST_DIR");
  if (folder != nullptr) return folder;
  const std::string tree =
      std::filesystem::canonical("WORKSPACE").parent_path();
  return tree + "/../shared/data/mnist8k";
}

TEST(RealMnistTest, HasTheUsualMeanAndDeviation) {
  const std::string folder = RealMnist();
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "no MNIST: PSRING_MNIST_DIR is not set, and no " << folder;
  }
  const auto loaded = LoadIdx(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->train.shape, (ImageShape{1, 28, 28, 10}));
  EXPECT_EQ(loaded->test.shape, (ImageShape{1, 28, 28, 10}));
  double sum = 0, squares = 0;
  for (const uint8_t level : loaded->train.pixels) {
    const double scaled = level / 255.0;
    sum += scaled;
    squares += scaled * scaled;
  }
  const auto count = static_cast<double>(loaded->train.pixels.size());
  const double mean = sum / count;
  EXPECT_NEAR(mean, loaded->train.mean[0], 5e-3);
  EXPECT_NEAR(std::sqrt(squares / count - mean * mean), loaded->train.stddev[0],
              5e-3);
}

}  // namespace
}  // namespace psring
