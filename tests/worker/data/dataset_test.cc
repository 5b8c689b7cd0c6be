#include "worker/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "tests/testing/test_directory.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/load_dataset.h"

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using testing::TestDirectory;

// Three images of two channels, 1x2 pixels each.
Dataset Tiny() {
  Dataset dataset;
  dataset.pixels = PixelsFromBytes(
      absl::string_view("\0\xff\x33\x66\1\2\3\4\5\6\7\x08", 12));
  dataset.labels = LabelsFromBytes(absl::string_view("\4\0\xff", 3));
  dataset.shape = {2, 1, 2, 256};
  dataset.mean = {0.5, 0.1};
  dataset.stddev = {0.25, 2};
  return dataset;
}

std::vector<float> ImagesOf(const Dataset& dataset,
                            const std::vector<int64_t>& indices) {
  std::vector<float> images(indices.size() * dataset.pixels_per_image());
  EXPECT_TRUE(dataset.CopyImages(indices, 0, absl::MakeSpan(images)).ok());
  return images;
}

std::vector<int64_t> LabelsOf(const Dataset& dataset,
                              const std::vector<int64_t>& indices) {
  std::vector<int64_t> labels(indices.size());
  dataset.CopyLabels(indices, absl::MakeSpan(labels));
  return labels;
}

TEST(DatasetTest, KnowsItsSizes) {
  EXPECT_EQ(Tiny().size(), 3);
  EXPECT_EQ(Tiny().pixels_per_image(), 4);
  EXPECT_EQ(Dataset().size(), 0);
  EXPECT_THAT(Tiny().Image(2), ElementsAre(5, 6, 7, 8));
}

TEST(DatasetTest, NormalisesEachChannelByItsOwnMeanAndDeviation) {
  EXPECT_THAT(ImagesOf(Tiny(), {0}),
              Pointwise(::testing::FloatEq(),
                        {-2.0f, 2.0f, (0.2f - 0.1f) / 2, (0.4f - 0.1f) / 2}));
}

TEST(DatasetTest, TakesABatchInTheOrderAskedForWithRepeats) {
  const std::vector<float> zero = ImagesOf(Tiny(), {0});
  const std::vector<float> two = ImagesOf(Tiny(), {2});
  std::vector<float> expected;
  for (const auto& image : {two, zero, two}) {
    expected.insert(expected.end(), image.begin(), image.end());
  }
  EXPECT_EQ(ImagesOf(Tiny(), {2, 0, 2}), expected);
  EXPECT_NE(zero, two);
  EXPECT_THAT(LabelsOf(Tiny(), {2, 0, 2}), ElementsAre(255, 4, 255));
  EXPECT_THAT(ImagesOf(Tiny(), {}), ElementsAre());
}

TEST(DatasetTest, ThrowsForAnIndexThatDoesNotExist) {
  EXPECT_THROW(Tiny().Image(3), std::out_of_range);
  EXPECT_THROW(ImagesOf(Tiny(), {3}), std::out_of_range);
  EXPECT_THROW(ImagesOf(Tiny(), {-1}), std::out_of_range);
  EXPECT_THROW(LabelsOf(Tiny(), {3}), std::out_of_range);
}

TEST(LoadDatasetTest, FindsEveryKindByItsName) {
  const std::string mnist = TestDirectory(".mnist");
  testing::WriteTinyMnist(mnist);
  auto loaded = LoadDataset("mnist:" + mnist);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->train.size(), 3);
  EXPECT_THAT(loaded->test.mean, ElementsAre(0.1307));
  EXPECT_THAT(loaded->test.stddev, ElementsAre(0.3081));

  const std::string cifar = TestDirectory(".cifar:10");
  testing::WriteTinyCifar10(cifar);
  loaded = LoadDataset("cifar10:" + cifar);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->train.size(), 5);
  EXPECT_THAT(loaded->test.mean, ElementsAre(0.4914, 0.4822, 0.4465));
  EXPECT_THAT(loaded->test.stddev, ElementsAre(0.2470, 0.2435, 0.2616));

  loaded = LoadDataset("digits:train=20,test=10");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->train.size(), 20);
  EXPECT_EQ(loaded->test.size(), 10);
}

TEST(LoadDatasetTest, NamesTheSpecAndListsTheKnownForAnUnknownOne) {
  for (const char* spec : {"imagenet:/data", "", "MNIST:/data", ":x"}) {
    const auto loaded = LoadDataset(spec);
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(loaded.status().message());
    EXPECT_THAT(message, HasSubstr(std::string("'") + spec + "'"));
    EXPECT_THAT(message, HasSubstr("mnist:DIR, cifar10:DIR, images:DIR["));
  }
}

TEST(LoadDatasetTest, NamesThePartAtFault) {
  const struct {
    const char* spec;
    const char* culprit;
  } kRows[] = {
      {"mnist", "names no folder. Write mnist:DIR"},
      {"cifar10:", "names no folder. Write cifar10:DIR"},
      {"digits:train=0", "'train=0': expected a number from 1"},
      {"digits:train=many", "'train=many'"},
      {"digits:test=1000001", "'test=1000001'"},
      {"digits:seed=-1", "'seed=-1'"},
      {"digits:train=5,", "'' is none of train=N"},
      {"digits:train=5,size=3", "'size=3' is none of train=N, test=M, seed=S"},
      {"digits:train=5,test=2,train=6", "'train=6': train= comes twice"},
      {"synthetic:1x4x4,test=2,test=2", "'test=2': test= comes twice"},
      {"images:/tmp,size=64,augment=no,size=32",
       "'size=64': size= comes twice"},
  };
  for (const auto& row : kRows) {
    const auto loaded = LoadDataset(row.spec);
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(row.culprit));
  }
}

// Folders differ between hosts.
TEST(DatasetKindTest, LeavesOutTheFolder) {
  EXPECT_EQ(DatasetKind("mnist:/a/b"), "mnist");
  EXPECT_EQ(DatasetKind("cifar10:x"), "cifar10");
  EXPECT_EQ(DatasetKind("images:/a,b,size=64,augment=no"),
            "images,size=64,augment=no");
  EXPECT_EQ(DatasetKind("digits:train=5"), "digits:train=5");
  EXPECT_EQ(DatasetKind("digits"), "digits");
  EXPECT_EQ(DatasetKind("other:/a"), "other:/a");
}

TEST(LoadDatasetTest, KeepsTheCodeOfAnErrorInAFile) {
  const auto loaded = LoadDataset("mnist:/does/not/exist");
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(loaded.status().message()),
              HasSubstr("tried /does/not/exist/train-images-idx3-ubyte and "));
}

}  // namespace
}  // namespace psring
