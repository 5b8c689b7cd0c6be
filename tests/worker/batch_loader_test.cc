#include "worker/batch_loader.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace psring {
namespace {

Dataset Images() {
  Dataset dataset;
  dataset.shape = {3, 5, 7, 10};
  dataset.mean = {0.1307, 0.5, 0.2};
  dataset.stddev = {0.3081, 0.29, 0.11};
  dataset.pixels.resize(100 * 3 * 5 * 7);
  for (size_t i = 0; i < dataset.pixels.size(); ++i) {
    dataset.pixels[i] = static_cast<uint8_t>(i * 37 + i / 256);
  }
  for (int i = 0; i < 100; ++i) dataset.labels.push_back(i % 10);
  return dataset;
}

std::vector<int64_t> Some(int64_t first, int64_t count) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back((first + 13 * i) % 100);
  return indices;
}

class Loaders : public ::testing::TestWithParam<LoaderOptions> {};

TEST_P(Loaders, GiveTheSamplesOfBatchOf) {
  const Dataset dataset = Images();
  BatchLoader loader(dataset, GetParam());
  for (int step = 0; step < 50; ++step) {
    const std::vector<int64_t> indices = Some(step, step % 30);
    const Batch wanted = BatchOf(dataset, indices, at::kCPU);
    const Batch batch = loader.Load(indices);
    EXPECT_TRUE(batch.images.equal(wanted.images)) << step;
    EXPECT_TRUE(batch.labels.equal(wanted.labels)) << step;
    EXPECT_EQ(batch.images.is_contiguous(at::MemoryFormat::ChannelsLast),
              GetParam().channels_last);
    // Some are not what comes next, and some are not asked for.
    loader.Prepare(Some(step + (step % 7 == 3 ? 2 : 1), (step + 1) % 30));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Loaders,
    ::testing::Values(LoaderOptions{}, LoaderOptions{.threads = 1},
                      LoaderOptions{.threads = 3, .channels_last = true},
                      LoaderOptions{.threads = 2, .normalise_on_device = true},
                      LoaderOptions{.resident = true},
                      LoaderOptions{.resident = true, .channels_last = true}));

TEST(BatchLoader, ThrowsOnTheCallersThreadForASampleThatIsNotThere) {
  const Dataset dataset = Images();
  BatchLoader loader(dataset, {.threads = 1});
  EXPECT_THROW(loader.Prepare({1, 100}), std::out_of_range);
  EXPECT_THROW(loader.Load({-1}), std::out_of_range);
}

}  // namespace
}  // namespace psring
