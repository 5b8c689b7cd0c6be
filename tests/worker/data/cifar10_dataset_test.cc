#include "worker/data/cifar10_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/testing/test_directory.h"
#include "tests/worker/data/data_files.h"

namespace psring {
namespace {

using ::testing::AllOf;
using testing::CifarRecord;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestDirectory;
using testing::WriteFile;

class Cifar10DatasetTest : public ::testing::Test {
 protected:
  Cifar10DatasetTest() { testing::WriteTinyCifar10(folder_); }

  void ExpectError(absl::StatusCode code,
                   const ::testing::Matcher<std::string>& message) {
    const auto loaded = LoadCifar10(folder_);
    EXPECT_EQ(loaded.status().code(), code);
    EXPECT_THAT(std::string(loaded.status().message()), message);
  }

  const std::string folder_ = TestDirectory();
  const std::string batch_ = folder_ + "/data_batch_3.bin";
};

TEST_F(Cifar10DatasetTest, ReadsTheFiveBatchesInOrderAndTheTest) {
  const auto loaded = LoadCifar10(folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Dataset& train = loaded->train;
  EXPECT_EQ(train.shape, (ImageShape{3, 32, 32, 10}));
  EXPECT_THAT(train.labels, ElementsAre(1, 2, 3, 4, 5));
  for (int i = 0; i < 5; ++i) {
    for (int channel = 0; channel < 3; ++channel) {
      const int level = 11 + i + 10 * channel;
      EXPECT_THAT(train.Image(i).subspan(channel * 32 * 32, 32 * 32),
                  Each(level));
    }
  }
  EXPECT_THAT(loaded->test.labels, ElementsAre(6, 7));
  EXPECT_EQ(loaded->test.Image(1).back(), 6);
}

// Of the Python version, for one.
TEST_F(Cifar10DatasetTest, NamesTheVersionThatItReadsWhereAFileIsMissing) {
  std::filesystem::remove(batch_);
  ExpectError(absl::StatusCode::kNotFound,
              AllOf(HasSubstr("data_batch_3.bin"),
                    HasSubstr("cifar-10-binary.tar.gz")));
}

TEST_F(Cifar10DatasetTest, LooksInTheFolderOfTheOriginalArchiveToo) {
  const std::string inner = folder_ + "/cifar-10-batches-bin";
  std::filesystem::create_directory(inner);
  std::filesystem::rename(batch_, inner + "/data_batch_3.bin");
  EXPECT_TRUE(LoadCifar10(folder_).ok());
}

TEST_F(Cifar10DatasetTest, ListsWhatItTriedForAMissingFile) {
  std::filesystem::remove(batch_);
  ExpectError(absl::StatusCode::kNotFound,
              AllOf(HasSubstr(batch_),
                    HasSubstr("cifar-10-batches-bin/data_batch_3.bin")));
}

TEST_F(Cifar10DatasetTest, ReportsAFileThatIsNotWholeRecords) {
  for (size_t size : {0, 1, 3072}) {
    WriteFile(batch_, CifarRecord(1, 1, 1, 1).substr(0, size));
    ExpectError(absl::StatusCode::kDataLoss,
                AllOf(HasSubstr(batch_), HasSubstr("3073")));
  }
}

TEST_F(Cifar10DatasetTest, ReportsALabelAboveNine) {
  WriteFile(batch_, CifarRecord(9, 1, 1, 1) + CifarRecord(10, 1, 1, 1));
  ExpectError(absl::StatusCode::kInvalidArgument,
              AllOf(HasSubstr(batch_), HasSubstr("label 1 is 10")));
}

}  // namespace
}  // namespace psring
