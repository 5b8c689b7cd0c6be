#include "common/model/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/testing/tensor_lists.h"

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RandomTensors;
using testing::Tensor;
using testing::TensorList;

Layout MakeLayout(const TensorList& tensors, int64_t bucket_bytes) {
  absl::StatusOr<Layout> layout = Layout::Create(tensors, bucket_bytes);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

absl::Status CreateError(const TensorList& tensors, int64_t bucket_bytes = 1) {
  return Layout::Create(tensors, bucket_bytes).status();
}

TEST(LayoutTest, TensorsLieInOrderAtAlignedStarts) {
  const Layout layout = MakeLayout(
      {Tensor("a", {3, 5}), Tensor("b", {2, 8}), Tensor("c", {17})}, 1 << 20);
  EXPECT_EQ(layout.tensor(0), (Range{0, 15}));
  EXPECT_EQ(layout.tensor(1), (Range{16, 32}));
  EXPECT_EQ(layout.tensor(2), (Range{32, 49}));
  EXPECT_EQ(layout.num_elements(), 64);
  EXPECT_EQ(layout.num_parameters(), 48);
}

TEST(LayoutTest, CountsTheModelsParameters) {
  EXPECT_EQ(MakeLayout(testing::Lenet(), 1).num_parameters(), 21840);
  EXPECT_EQ(MakeLayout(testing::Resnet18(), 1).num_parameters(), 11689512);
}

TEST(LayoutTest, ScalarsHaveOneElementAndEmptyTensorsNone) {
  const Layout layout = MakeLayout(
      {Tensor("empty", {4, 0, int64_t{1} << 62}), Tensor("scalar", {})}, 1);
  EXPECT_TRUE(layout.tensor(0).empty());
  EXPECT_EQ(layout.tensor(1), (Range{0, 1}));
}

TEST(LayoutTest, BucketZeroHoldsTheLastTensors) {
  const Layout layout =
      MakeLayout({Tensor("a", {16}), Tensor("b", {16}), Tensor("c", {16}),
                  Tensor("d", {16}), Tensor("e", {16})},
                 2 * 64);
  ASSERT_EQ(layout.num_buckets(), 3);
  EXPECT_EQ(layout.bucket(0), (Range{48, 80}));
  EXPECT_EQ(layout.bucket(1), (Range{16, 48}));
  EXPECT_EQ(layout.bucket(2), (Range{0, 16}));
  EXPECT_EQ(layout.bucket_of_tensor(0), 2);
  EXPECT_EQ(layout.bucket_of_tensor(4), 0);
}

TEST(LayoutTest, EmptyTensorsMakeNoEmptyBucket) {
  const Layout layout = MakeLayout({Tensor("empty", {0}), Tensor("a", {16}),
                                    Tensor("b", {16}), Tensor("empty2", {0})},
                                   1);
  ASSERT_EQ(layout.num_buckets(), 2);
  EXPECT_EQ(layout.bucket_of_tensor(0), 1);
  EXPECT_EQ(layout.bucket_of_tensor(3), 0);
}

TEST(LayoutTest, BucketsTouchCoverAlignAndHoldWholeTensors) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    const TensorList tensors = RandomTensors(random);
    const int64_t bucket_bytes = 1 + random() % 20000;
    const Layout layout = MakeLayout(tensors, bucket_bytes);
    int64_t end = layout.num_elements();
    for (int b = 0; b < layout.num_buckets(); ++b) {
      const Range bucket = layout.bucket(b);
      EXPECT_EQ(bucket.end, end);
      EXPECT_EQ(bucket.begin % kAlignElements, 0);
      if (b + 1 < layout.num_buckets()) {
        EXPECT_GE(bucket.size() * 4, bucket_bytes);
      }
      end = bucket.begin;
    }
    EXPECT_EQ(end, 0);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Range bucket = layout.bucket(layout.bucket_of_tensor(i));
      EXPECT_EQ(Intersect(layout.tensor(i), bucket).size(),
                layout.tensor(i).size());
    }
  }
}

TEST(LayoutTest, BucketsHalveTowardsTheEndOfBackward) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(BucketLimit(100 * kMiB, 25 * kMiB), 25 * kMiB);
  EXPECT_EQ(BucketLimit(40 * kMiB, 25 * kMiB), 20 * kMiB);
  EXPECT_EQ(BucketLimit(2 * kMiB, 25 * kMiB), kMiB);
  EXPECT_EQ(BucketLimit(2 * kMiB - 1, 25 * kMiB), 25 * kMiB) << "all the rest";
  EXPECT_EQ(BucketLimit(2 * kMiB - 1, 100), 100);
  EXPECT_EQ(BucketLimit(40 * kMiB, 100), 100);

  const Layout layout = MakeLayout(testing::Resnet18(), kDefaultBucketBytes);
  ASSERT_EQ(layout.num_buckets(), 5);  // of 45 MiB
  for (int b = 1; b < layout.num_buckets(); ++b) {
    EXPECT_LT(layout.bucket(b).size(), layout.bucket(b - 1).size());
  }
  EXPECT_LT(layout.bucket(4).size() * 4, kMiB);
  EXPECT_EQ(MakeLayout(testing::Lenet(), kDefaultBucketBytes).num_buckets(), 1);
}

TEST(LayoutTest, DigestTellsNamesShapesOrderAndBucketsApart) {
  const TensorList a = {Tensor("a", {2, 3}), Tensor("b", {600})};
  const uint64_t digest = MakeLayout(a, 4).digest();
  EXPECT_EQ(MakeLayout(a, 4).digest(), digest);
  EXPECT_EQ(MakeLayout(a, 8).digest(), digest) << "the buckets are the same";
  EXPECT_NE(MakeLayout(a, 1 << 20).digest(), digest);
  EXPECT_NE(MakeLayout({a[1], a[0]}, 4).digest(), digest);
  EXPECT_NE(MakeLayout({Tensor("A", {2, 3}), a[1]}, 4).digest(), digest);
  EXPECT_NE(MakeLayout({Tensor("a", {3, 2}), a[1]}, 4).digest(), digest);
  EXPECT_NE(MakeLayout({Tensor("a", {6}), a[1]}, 4).digest(), digest);
}

TEST(LayoutTest, ErrorsNameTheTensor) {
  EXPECT_THAT(CreateError({}).message(), HasSubstr("no parameters"));
  EXPECT_THAT(CreateError({Tensor("w", {3, -1})}).message(),
              HasSubstr("tensor w of shape [3,-1] has a negative dimension"));
  EXPECT_THAT(CreateError({Tensor("w", {0, -1})}).message(),
              HasSubstr("negative dimension"));
  EXPECT_THAT(CreateError({Tensor("w", {3}), Tensor("w", {4})}).message(),
              HasSubstr("two tensors are named w"));
  EXPECT_THAT(CreateError({Tensor("w", {3})}, 0).message(),
              HasSubstr("bucket of 0 bytes"));
}

TEST(LayoutTest, SizesThatOverflowAreErrors) {
  const int64_t big = int64_t{1} << 32;
  EXPECT_THAT(CreateError({Tensor("w", {big, big})}).message(),
              HasSubstr("tensor w of shape [4294967296,4294967296]"));
  EXPECT_THAT(CreateError({Tensor("w", {big, big, big, big})}).message(),
              HasSubstr("tensor w"));
  EXPECT_FALSE(CreateError({Tensor("w", {big << 8})}).ok());
  EXPECT_FALSE(
      CreateError({Tensor("v", {big << 7}), Tensor("w", {big << 7})}).ok());
  EXPECT_TRUE(CreateError({Tensor("w", {big << 7})}).ok());
}

TEST(IntersectTest, IsEmptyWhereRangesAreApart) {
  EXPECT_EQ(Intersect({0, 10}, {5, 20}), (Range{5, 10}));
  EXPECT_EQ(Intersect({0, 10}, {10, 20}).size(), 0);
  EXPECT_EQ(Intersect({15, 20}, {0, 10}).size(), 0);
}

TEST(NearEqualPartTest, PartsTouchCoverAlignAndDifferByOneBlock) {
  std::mt19937 random(2);
  for (int round = 0; round < 1000; ++round) {
    const int64_t begin = random() % 1000 * kAlignElements;
    const Range whole{begin, begin + static_cast<int64_t>(random() % 2000)};
    const int n = 1 + random() % 9;
    int64_t end = whole.begin;
    int64_t smallest = whole.size(), largest = 0;
    for (int c = 0; c < n; ++c) {
      const Range part = NearEqualPart(whole, n, c);
      EXPECT_EQ(part.begin, end);
      EXPECT_TRUE((part.begin - whole.begin) % kAlignElements == 0 ||
                  part.begin == whole.end);
      smallest = std::min(smallest, part.size());
      largest = std::max(largest, part.size());
      end = part.end;
    }
    EXPECT_EQ(end, whole.end);
    EXPECT_LE(largest - smallest, 2 * kAlignElements - 1);
  }
}

TEST(PiecesOfShardTest, CoverEachShardOnceInBackwardOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const Layout layout =
        MakeLayout(RandomTensors(random), 1 + random() % 20000);
    const Range all{0, layout.num_elements()};
    const int servers = 1 + random() % 5;
    const int64_t max_elements = (1 + random() % 100) * kAlignElements;
    std::vector<int> times(layout.num_elements(), 0);
    for (int s = 0; s < servers; ++s) {
      const Range shard = NearEqualPart(all, servers, s);
      int bucket = 0;
      for (const Piece& p : PiecesOfShard(layout, {shard}, max_elements)) {
        EXPECT_GE(p.bucket, bucket);
        EXPECT_GT(p.range.size(), 0);
        EXPECT_LE(p.range.size(), max_elements);
        EXPECT_EQ(p.range.begin % kAlignElements, 0);
        EXPECT_EQ(Intersect(p.range, shard), p.range);
        EXPECT_EQ(Intersect(p.range, layout.bucket(p.bucket)), p.range);
        for (int64_t i = p.range.begin; i < p.range.end; ++i) ++times[i];
        bucket = p.bucket;
      }
    }
    EXPECT_THAT(times, ::testing::Each(1));
  }
}

TEST(PiecesOfShardTest, CutsBucketsAtTheLargestSize) {
  const Layout layout = MakeLayout({Tensor("a", {32}), Tensor("b", {40})}, 1);
  EXPECT_THAT(
      PiecesOfShard(layout, {{16, 80}}, 32),
      ElementsAre(Piece{0, {32, 64}}, Piece{0, {64, 80}}, Piece{1, {16, 32}}));
}

}  // namespace
}  // namespace psring
