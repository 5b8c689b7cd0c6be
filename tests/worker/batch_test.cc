#include "worker/batch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <numeric>

namespace psring {
namespace {

// Every pixel there is, as an image of 16x16 with label 7, and its negative.
Dataset AllLevels() {
  Dataset dataset;
  dataset.pixels.resize(512);
  std::iota(dataset.pixels.begin(), dataset.pixels.begin() + 256, 0);
  std::copy(dataset.pixels.begin(), dataset.pixels.begin() + 256,
            dataset.pixels.rbegin());
  dataset.labels = {7, 3};
  dataset.shape = {1, 16, 16, 10};
  dataset.mean = {0.1307};
  dataset.stddev = {0.3081};
  return dataset;
}

TEST(BatchTest, RoundsAsFloat32ArithmeticOnTensorsDoes) {
  const at::Tensor levels = at::arange(256, at::kByte).view({1, 1, 16, 16});
  const at::Tensor scaled = levels.to(at::kFloat).div(255);
  const at::Tensor mean = at::full({1}, 0.1307, at::kFloat);
  const at::Tensor stddev = at::full({1}, 0.3081, at::kFloat);
  const Batch batch = BatchOf(AllLevels(), {0}, at::kCPU);
  EXPECT_TRUE(batch.images.equal(scaled.sub(mean).div(stddev)));
}

TEST(BatchTest, HasTheSamplesInTheOrderAskedFor) {
  const Batch batch = BatchOf(AllLevels(), {1, 0, 1}, at::kCPU);
  EXPECT_EQ(batch.images.scalar_type(), at::kFloat);
  EXPECT_EQ(batch.images.sizes(), at::IntArrayRef({3, 1, 16, 16}));
  EXPECT_TRUE(batch.images.flip({0}).equal(batch.images));
  EXPECT_TRUE(batch.images.flip({1, 2, 3})[1].equal(batch.images[0]));
  EXPECT_TRUE(batch.labels.equal(at::tensor({3, 7, 3}, at::kLong)));
}

TEST(BatchTest, MayBeEmpty) {
  EXPECT_EQ(BatchOf(AllLevels(), {}, at::kCPU).images.size(0), 0);
}

}  // namespace
}  // namespace psring
