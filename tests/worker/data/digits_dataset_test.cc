#include "worker/data/digits_dataset.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace psring {
namespace {

TEST(DigitsDatasetTest, HasTenClassesOf28x28InAboutEqualShares) {
  const DatasetPair digits = DrawDigits({.num_train = 2000, .num_test = 50});
  EXPECT_EQ(digits.train.shape(), (ImageShape{1, 28, 28, 10}));
  EXPECT_EQ(digits.train.size(), 2000);
  EXPECT_EQ(digits.test.size(), 50);
  const at::Tensor shares = digits.train.labels.bincount();
  ASSERT_EQ(shares.size(0), 10);
  EXPECT_GT(shares.min().item<int64_t>(), 150);
}

TEST(DigitsDatasetTest, IsTheBeginningOfALargerOne) {
  const Dataset small = DrawDigits({.num_train = 10, .num_test = 5}).train;
  const Dataset large = DrawDigits({.num_train = 30, .num_test = 9}).train;
  EXPECT_TRUE(small.images.equal(large.images.slice(0, 0, 10)));
  EXPECT_TRUE(small.labels.equal(large.labels.slice(0, 0, 10)));
}

TEST(DigitsDatasetTest, SharesNoImageBetweenPartsOrSeeds) {
  const DatasetPair a = DrawDigits({.num_train = 10, .num_test = 10});
  const DatasetPair b =
      DrawDigits({.num_train = 10, .num_test = 10, .seed = 1});
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_FALSE(a.train.images[i].equal(a.test.images[i])) << i;
    EXPECT_FALSE(a.train.images[i].equal(b.train.images[i])) << i;
  }
}

TEST(DigitsDatasetTest, IsNormalisedToMeanZeroAndDeviationOne) {
  const Dataset train = DrawDigits(DigitsOptions()).train;
  std::vector<int64_t> all(train.size());
  for (int64_t i = 0; i < train.size(); ++i) all[i] = i;
  const at::Tensor images = train.BatchImages(all);
  EXPECT_NEAR(images.mean().item<double>(), 0, 1e-3);
  EXPECT_NEAR(images.std().item<double>(), 1, 1e-3);
}

// All samples of a part, a row for each, with a column of ones.
at::Tensor Rows(const Dataset& part) {
  std::vector<int64_t> all(part.size());
  for (int64_t i = 0; i < part.size(); ++i) all[i] = i;
  return at::cat({part.BatchImages(all).flatten(1), at::ones({part.size(), 1})},
                 1);
}

// Softmax regression by gradient descent with momentum, in batches of 80.
TEST(DigitsDatasetTest, IsTooHardForALinearModel) {
  // Threads that wait for each other cost more than they save here.
  at::set_num_threads(1);
  const DatasetPair digits = DrawDigits(DigitsOptions());
  const at::Tensor inputs = Rows(digits.train);
  const at::Tensor targets =
      at::one_hot(digits.train.labels, 10).to(at::kFloat);
  at::Tensor weights = at::zeros({785, 10});
  at::Tensor velocity = at::zeros({785, 10});
  for (int step = 0; step < 3000; ++step) {
    const int64_t from = step % 100 * 80;
    const at::Tensor x = inputs.slice(0, from, from + 80);
    const at::Tensor error =
        at::softmax(at::mm(x, weights), 1) - targets.slice(0, from, from + 80);
    velocity = 0.9 * velocity + at::mm(x.t(), error) / 80;
    weights -= 0.005 * velocity;
  }
  const at::Tensor predicted = at::mm(Rows(digits.test), weights).argmax(1);
  const double accuracy =
      predicted.eq(digits.test.labels).to(at::kDouble).mean().item<double>();
  RecordProperty("accuracy", std::to_string(accuracy));
  EXPECT_LT(accuracy, 0.93);
  EXPECT_GT(accuracy, 0.8);  // yet not noise
}

}  // namespace
}  // namespace psring
