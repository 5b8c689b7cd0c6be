#include "worker/batch_loader.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace psring {
namespace {

using ::testing::HasSubstr;

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

// Gives the images of another data set, brightened by the draw; cannot read
// image `broken`.
class Brightened : public ImageSource {
 public:
  Brightened(Dataset from, int64_t broken)
      : from_(std::move(from)), broken_(broken) {}

  absl::Status Read(int64_t index, uint64_t draw,
                    absl::Span<uint8_t> out) const override {
    if (index == broken_) return absl::DataLossError("image 17 is damaged");
    const absl::Span<const uint8_t> image = from_.Image(index);
    std::transform(image.begin(), image.end(), out.begin(),
                   [draw](uint8_t level) { return level + draw; });
    return absl::OkStatus();
  }

 private:
  const Dataset from_;
  const int64_t broken_;
};

Dataset FromSource(int64_t broken = -1) {
  Dataset dataset = Images();
  dataset.source = std::make_shared<Brightened>(Images(), broken);
  dataset.pixels.clear();
  return dataset;
}

Samples Some(int64_t first, int64_t count) {
  Samples samples = {{}, static_cast<uint64_t>(first / 10)};
  for (int64_t i = 0; i < count; ++i) {
    samples.indices.push_back((first + 13 * i) % 100);
  }
  return samples;
}

class Loaders : public ::testing::TestWithParam<LoaderOptions> {
 protected:
  static void ExpectTheSamplesOfAPlainLoader(const Dataset& dataset) {
    BatchLoader plain(dataset, {});
    BatchLoader loader(dataset, GetParam());
    for (int step = 0; step < 50; ++step) {
      const Samples samples = Some(step, step % 30);
      const auto wanted = plain.Load(samples);
      const auto batch = loader.Load(samples);
      ASSERT_TRUE(wanted.ok() && batch.ok()) << batch.status();
      EXPECT_TRUE(batch->images.equal(wanted->images)) << step;
      EXPECT_TRUE(batch->labels.equal(wanted->labels)) << step;
      EXPECT_EQ(batch->images.is_contiguous(at::MemoryFormat::ChannelsLast),
                GetParam().channels_last);
      // Some are not what comes next, and some are not asked for.
      loader.Prepare(Some(step + (step % 7 == 3 ? 2 : 1), (step + 1) % 30));
    }
  }
};

TEST_P(Loaders, GiveTheSamplesOfAPlainLoader) {
  ExpectTheSamplesOfAPlainLoader(Images());
}

TEST_P(Loaders, GiveTheSamplesOfASource) {
  if (GetParam().resident) GTEST_SKIP() << "of data sets in memory alone";
  ExpectTheSamplesOfAPlainLoader(FromSource());
}

INSTANTIATE_TEST_SUITE_P(
    All, Loaders,
    ::testing::Values(LoaderOptions{}, LoaderOptions{.threads = 1},
                      LoaderOptions{.threads = 3, .channels_last = true},
                      LoaderOptions{.threads = 2, .normalise_on_device = true},
                      LoaderOptions{.resident = true},
                      LoaderOptions{.resident = true, .channels_last = true}));

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

Batch LoadPlainly(const Dataset& dataset, std::vector<int64_t> indices) {
  return BatchLoader(dataset, {}).Load({std::move(indices)}).value();
}

TEST(BatchLoader, RoundsAsFloat32ArithmeticOnTensorsDoes) {
  const at::Tensor levels = at::arange(256, at::kByte).view({1, 1, 16, 16});
  const at::Tensor scaled = levels.to(at::kFloat).div(255);
  const at::Tensor mean = at::full({1}, 0.1307, at::kFloat);
  const at::Tensor stddev = at::full({1}, 0.3081, at::kFloat);
  const Batch batch = LoadPlainly(AllLevels(), {0});
  EXPECT_TRUE(batch.images.equal(scaled.sub(mean).div(stddev)));
}

TEST(BatchLoader, HasTheSamplesInTheOrderAskedFor) {
  const Batch batch = LoadPlainly(AllLevels(), {1, 0, 1});
  EXPECT_EQ(batch.images.scalar_type(), at::kFloat);
  EXPECT_EQ(batch.images.sizes(), at::IntArrayRef({3, 1, 16, 16}));
  EXPECT_TRUE(batch.images.flip({0}).equal(batch.images));
  EXPECT_TRUE(batch.images.flip({1, 2, 3})[1].equal(batch.images[0]));
  EXPECT_TRUE(batch.labels.equal(at::tensor({3, 7, 3}, at::kLong)));
}

TEST(BatchLoader, MayLoadNothing) {
  EXPECT_EQ(LoadPlainly(AllLevels(), {}).images.size(0), 0);
}

TEST(BatchLoader, ShowsASourceWhatIsRandomAboutIt) {
  const Dataset dataset = FromSource();
  BatchLoader loader(dataset, {});
  const auto one = loader.Load({{3, 4}, 1});
  const auto other = loader.Load({{3, 4}, 2});
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_FALSE(one->images.equal(other->images));
}

TEST(BatchLoader, ReturnsTheErrorOfASource) {
  const Dataset dataset = FromSource(/*broken=*/17);
  for (const LoaderOptions& options :
       {LoaderOptions{}, LoaderOptions{.threads = 2},
        LoaderOptions{.threads = 2, .normalise_on_device = true}}) {
    BatchLoader loader(dataset, options);
    std::vector<int64_t> indices(40);
    std::iota(indices.begin(), indices.end(), 0);
    loader.Prepare({indices});
    EXPECT_THAT(std::string(loader.Load({indices}).status().message()),
                HasSubstr("image 17"));
    EXPECT_TRUE(loader.Load({{18}}).ok()) << "an error does not stay";
  }
}

TEST(BatchLoader, ThrowsOnTheCallersThreadForASampleThatIsNotThere) {
  const Dataset dataset = Images();
  BatchLoader loader(dataset, {.threads = 1});
  EXPECT_THROW(loader.Prepare({{1, 100}}), std::out_of_range);
  EXPECT_THROW(loader.Load({{-1}}).IgnoreError(), std::out_of_range);
}

// Room for some more GiB, of which a stack takes one.
TEST(BatchLoader, EndsTheThreadsThatItHasWhereTheSystemGivesNoMore) {
#ifdef PSRING_SANITIZED
  GTEST_SKIP() << "a sanitizer takes more addresses than a limit could allow";
#endif
  constexpr size_t kStack = size_t{1} << 30;
  const Dataset dataset = Images();
  const LoaderOptions options = {.threads = 64};
  pthread_attr_t usual, large;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&large);
  pthread_attr_setstacksize(&large, kStack);
  pthread_setattr_default_np(&large);
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before = {};
  getrlimit(RLIMIT_AS, &before);
  rlimit few = before;
  few.rlim_cur = pages * sysconf(_SC_PAGESIZE) + 4 * kStack;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &few), 0);
  EXPECT_THROW(BatchLoader(dataset, options), std::system_error);
  setrlimit(RLIMIT_AS, &before);
  pthread_setattr_default_np(&usual);
  pthread_attr_destroy(&usual);
  pthread_attr_destroy(&large);
}

}  // namespace
}  // namespace psring
