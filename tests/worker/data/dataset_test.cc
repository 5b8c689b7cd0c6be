#include "worker/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/test_directory.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/load_dataset.h"

namespace psring {
namespace {

using ::testing::HasSubstr;
using testing::TestDirectory;

// Three images of two channels, 1x2 pixels each.
Dataset Tiny() {
  Dataset dataset;
  dataset.images = ImagesFromBytes(
      absl::string_view("\0\xff\x33\x66\1\2\3\4\5\6\7\x08", 12), 3, 2, 1, 2);
  dataset.labels = LabelsFromBytes(absl::string_view("\4\0\xff", 3));
  dataset.mean = {0.5, 0.1};
  dataset.stddev = {0.25, 2};
  dataset.num_classes = 256;
  return dataset;
}

TEST(DatasetTest, TellsTheShapeThatAModelNeeds) {
  EXPECT_EQ(Tiny().size(), 3);
  EXPECT_EQ(Tiny().shape(), (ImageShape{2, 1, 2, 256}));
  EXPECT_EQ(Dataset().size(), 0);
}

TEST(DatasetTest, NormalisesEachChannelByItsOwnMeanAndDeviation) {
  const at::Tensor batch = Tiny().BatchImages({0});
  EXPECT_EQ(batch.scalar_type(), at::kFloat);
  const at::Tensor expected = at::tensor(
      {-2.0f, 2.0f, (0.2f - 0.1f) / 2, (0.4f - 0.1f) / 2}, at::kFloat);
  EXPECT_TRUE(at::allclose(batch, expected.view({1, 2, 1, 2})));
}

TEST(DatasetTest, RoundsAsFloat32ArithmeticOnTensorsDoes) {
  Dataset dataset = Tiny();
  dataset.images = at::arange(256, at::kByte).view({1, 1, 16, 16});
  dataset.labels = at::zeros({1}, at::kLong);
  dataset.mean = {0.1307};
  dataset.stddev = {0.3081};
  const at::Tensor scaled = dataset.images.to(at::kFloat) / 255;
  const at::Tensor mean = at::full({1}, 0.1307, at::kFloat);
  const at::Tensor stddev = at::full({1}, 0.3081, at::kFloat);
  EXPECT_TRUE(dataset.BatchImages({0}).equal((scaled - mean) / stddev));
}

TEST(DatasetTest, TakesABatchInTheOrderAskedForWithRepeats) {
  const Dataset dataset = Tiny();
  const at::Tensor images = dataset.BatchImages({2, 0, 2});
  EXPECT_TRUE(images[0].equal(dataset.BatchImages({2})[0]));
  EXPECT_TRUE(images[1].equal(dataset.BatchImages({0})[0]));
  EXPECT_TRUE(images[2].equal(images[0]));
  EXPECT_TRUE(dataset.BatchLabels({2, 0, 2}).equal(
      at::tensor({255, 4, 255}, at::kLong)));
  EXPECT_EQ(dataset.BatchImages({}).size(0), 0);
}

TEST(DatasetTest, ThrowsForAnIndexThatDoesNotExist) {
  EXPECT_THROW(Tiny().BatchImages({3}), c10::Error);
  EXPECT_THROW(Tiny().BatchImages({-1}), c10::Error);
  EXPECT_THROW(Tiny().BatchLabels({3}), c10::Error);
}

TEST(LoadDatasetTest, FindsEveryKindByItsName) {
  const std::string mnist = TestDirectory(".mnist");
  testing::WriteTinyMnist(mnist);
  auto loaded = LoadDataset("mnist:" + mnist);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->train.size(), 3);
  EXPECT_THAT(loaded->test.mean, ::testing::ElementsAre(0.1307));
  EXPECT_THAT(loaded->test.stddev, ::testing::ElementsAre(0.3081));

  const std::string cifar = TestDirectory(".cifar:10");
  testing::WriteTinyCifar10(cifar);
  loaded = LoadDataset("cifar10:" + cifar);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->train.size(), 5);
  EXPECT_THAT(loaded->test.mean,
              ::testing::ElementsAre(0.4914, 0.4822, 0.4465));
  EXPECT_THAT(loaded->test.stddev,
              ::testing::ElementsAre(0.2470, 0.2435, 0.2616));

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
    EXPECT_THAT(message, HasSubstr("mnist:DIR, cifar10:DIR, digits["));
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
      {"digits:train=5,size=3", "'size=3' is none of train=N"},
  };
  for (const auto& row : kRows) {
    const auto loaded = LoadDataset(row.spec);
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(row.culprit));
  }
}

TEST(LoadDatasetTest, KeepsTheCodeOfAnErrorInAFile) {
  const auto loaded = LoadDataset("mnist:/does/not/exist");
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(loaded.status().message()),
              HasSubstr("tried /does/not/exist/train-images-idx3-ubyte and "));
}

}  // namespace
}  // namespace psring
