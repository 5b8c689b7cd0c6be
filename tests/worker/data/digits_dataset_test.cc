#include "worker/data/digits_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace psring {
namespace {

constexpr int64_t kPixels = 28 * 28;

TEST(DigitsDatasetTest, HasTenClassesOf28x28InAboutEqualShares) {
  const DatasetPair digits = DrawDigits({.num_train = 2000, .num_test = 50});
  EXPECT_EQ(digits.train.shape, (ImageShape{1, 28, 28, 10}));
  EXPECT_EQ(digits.train.size(), 2000);
  EXPECT_EQ(digits.test.size(), 50);
  std::array<int, 10> shares = {};
  for (const int64_t label : digits.train.labels) ++shares.at(label);
  EXPECT_GT(*std::min_element(shares.begin(), shares.end()), 150);
}

TEST(DigitsDatasetTest, IsTheBeginningOfALargerOne) {
  const Dataset small = DrawDigits({.num_train = 10, .num_test = 5}).train;
  const Dataset large = DrawDigits({.num_train = 30, .num_test = 9}).train;
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(small.Image(i), large.Image(i)) << i;
    EXPECT_EQ(small.labels[i], large.labels[i]) << i;
  }
}

TEST(DigitsDatasetTest, SharesNoImageBetweenPartsOrSeeds) {
  const DatasetPair a = DrawDigits({.num_train = 10, .num_test = 10});
  const DatasetPair b =
      DrawDigits({.num_train = 10, .num_test = 10, .seed = 1});
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_NE(a.train.Image(i), a.test.Image(i)) << i;
    EXPECT_NE(a.train.Image(i), b.train.Image(i)) << i;
  }
}

// All images of a part, normalised.
std::vector<float> ImagesOf(const Dataset& part) {
  std::vector<int64_t> all(part.size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> images(part.size() * kPixels);
  EXPECT_TRUE(part.CopyImages(all, 0, absl::MakeSpan(images)).ok());
  return images;
}

TEST(DigitsDatasetTest, IsNormalisedToMeanZeroAndDeviationOne) {
  double sum = 0, squares = 0;
  const std::vector<float> images = ImagesOf(DrawDigits(DigitsOptions()).train);
  for (const float pixel : images) {
    sum += pixel;
    squares += pixel * pixel;
  }
  const auto count = static_cast<double>(images.size());
  EXPECT_NEAR(sum / count, 0, 1e-3);
  EXPECT_NEAR(std::sqrt(squares / count), 1, 1e-3);
}

// Softmax regression by gradient descent with momentum.
class LinearModel {
 public:
  int Predict(const float* image) const {
    const Scores scores = ScoresOf(image);
    return static_cast<int>(
        std::max_element(scores.begin(), scores.begin() + kClasses) -
        scores.begin());
  }

  // One step, on a batch.
  void Train(const float* images, const int64_t* labels, int size) {
    for (Scores& row : gradient_) row.fill(0);
    for (int i = 0; i < size; ++i) {
      AddGradient(images + i * kPixels, labels[i]);
    }
    for (int p = 0; p <= kPixels; ++p) {
      for (int c = 0; c < kPadded; ++c) {
        velocity_[p][c] = 0.9f * velocity_[p][c] + gradient_[p][c] / size;
        weights_[p][c] -= 0.005f * velocity_[p][c];
      }
    }
  }

 private:
  static constexpr int kClasses = 10;
  static constexpr int kPadded = 16;  // a number that vectorises
  using Scores = std::array<float, kPadded>;

  Scores ScoresOf(const float* image) const {
    Scores scores = weights_[kPixels];  // of the column of ones
    for (int p = 0; p < kPixels; ++p) {
      for (int c = 0; c < kPadded; ++c) scores[c] += image[p] * weights_[p][c];
    }
    return scores;
  }

  void AddGradient(const float* image, int64_t label) {
    Scores error = ScoresOf(image);
    float sum = 0;
    for (int c = 0; c < kClasses; ++c) sum += error[c] = std::exp(error[c]);
    for (int c = 0; c < kPadded; ++c)
      error[c] = c < kClasses ? error[c] / sum : 0;
    error[label] -= 1;
    for (int p = 0; p < kPixels; ++p) {
      for (int c = 0; c < kPadded; ++c) gradient_[p][c] += image[p] * error[c];
    }
    for (int c = 0; c < kPadded; ++c) gradient_[kPixels][c] += error[c];
  }

  // A row for each pixel, and one for a column of ones.
  using Matrix = std::vector<Scores>;
  Matrix weights_ = Matrix(kPixels + 1, Scores{});
  Matrix velocity_ = weights_;
  Matrix gradient_ = weights_;
};

TEST(DigitsDatasetTest, IsTooHardForALinearModel) {
  constexpr int kBatch = 80;
  const DatasetPair digits = DrawDigits(DigitsOptions());
  const std::vector<float> train = ImagesOf(digits.train);
  LinearModel model;
  for (int step = 0; step < 3000; ++step) {
    const int64_t from = step % 100 * kBatch;
    model.Train(&train[from * kPixels], &digits.train.labels[from], kBatch);
  }
  const std::vector<float> test = ImagesOf(digits.test);
  double correct = 0;
  for (int64_t i = 0; i < digits.test.size(); ++i) {
    correct += model.Predict(&test[i * kPixels]) == digits.test.labels[i];
  }
  const double accuracy = correct / static_cast<double>(digits.test.size());
  RecordProperty("accuracy", std::to_string(accuracy));
  EXPECT_LT(accuracy, 0.93);
  EXPECT_GT(accuracy, 0.8);  // yet not noise
}

}  // namespace
}  // namespace psring
