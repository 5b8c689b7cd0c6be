#include "common/model/shard_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/testing/tensor_lists.h"

namespace psring {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMiB = 1 << 18;  // of float32

std::vector<Range> Buckets(const std::vector<int64_t>& sizes) {
  int64_t end = 0;
  for (const int64_t size : sizes) end += size;
  std::vector<Range> buckets;
  for (const int64_t size : sizes) {
    buckets.push_back({end - size, end});
    end -= size;
  }
  return buckets;
}

std::vector<int64_t> Sizes(const std::vector<Ranges>& cut) {
  std::vector<int64_t> sizes;
  for (const Ranges& part : cut) sizes.push_back(TotalSize(part));
  return sizes;
}

// How often each element of [0, end) is in `cut`, whose ranges are as promised.
std::vector<int> Times(const std::vector<Ranges>& cut, int64_t end) {
  std::vector<int> times(end, 0);
  for (const Ranges& part : cut) {
    int64_t before = -1;
    for (const Range& range : part) {
      EXPECT_GT(range.begin, before);
      EXPECT_FALSE(range.empty());
      EXPECT_EQ(range.begin % kAlignElements, 0);
      before = range.end;
      for (int64_t i = range.begin; i < range.end; ++i) ++times[i];
    }
  }
  return times;
}

TEST(CutAmongServers, EveryElementIsOnesOwn) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> sizes(1 + random() % 6);
    for (int64_t& size : sizes) size = kAlignElements * (random() % 3000);
    const int servers = static_cast<int>(1 + random() % 9);
    const auto buckets = Buckets(sizes);
    const int64_t end = buckets[0].end;
    const auto cut = CutAmongServers(buckets, servers);
    ASSERT_EQ(cut.size(), static_cast<size_t>(servers));
    EXPECT_THAT(Times(cut, end), Each(1));
    for (const Ranges& part : cut) {
      const int threads = static_cast<int>(1 + random() % 4);
      std::vector<int> of_threads =
          Times(CutAmongThreads(part, buckets, threads), end);
      EXPECT_EQ(of_threads, Times({part}, end));
    }
  }
}

// Else all workers would push to one server after the other.
TEST(CutAmongServers, AllHaveAnEqualPartOfEveryBucket) {
  const auto buckets = Buckets({kMiB * 6, kMiB * 10, kMiB * 8});
  for (const Ranges& part : CutAmongServers(buckets, 4)) {
    for (const Range& bucket : buckets) {
      EXPECT_EQ(SizeWithin(part, bucket), bucket.size() / 4);
    }
  }
}

TEST(CutAmongServers, OneServerHasTheModelInOnePiece) {
  EXPECT_THAT(CutAmongServers(Buckets({160, 1600, 16}), 1),
              ElementsAre(ElementsAre(Range{0, 1776})));
}

TEST(CutAmongServers, TheLargestPartIsAtMostFivePercentAboveTheSmallest) {
  for (const auto& tensors :
       {testing::Lenet(), testing::Mlp({784, 2048, 2048, 10}),
        testing::Resnet18()}) {
    for (const int64_t bucket_bytes : {25 << 20, 4 << 20, 1 << 18}) {
      const Layout layout = *Layout::Create(tensors, bucket_bytes);
      std::vector<Range> buckets;
      for (int b = 0; b < layout.num_buckets(); ++b) {
        buckets.push_back(layout.bucket(b));
      }
      for (const int servers : {2, 3, 4, 8}) {
        const auto sizes = Sizes(CutAmongServers(buckets, servers));
        const auto [least, most] =
            std::minmax_element(sizes.begin(), sizes.end());
        EXPECT_LE(*most, 1.05 * *least)
            << servers << " servers, buckets of " << bucket_bytes;
      }
    }
  }
}

TEST(CutAmongServers, OfASmallModelEachHasAtLeastEightKilobytes) {
  const auto sizes = [](int64_t elements) {
    return Sizes(CutAmongServers(Buckets({elements}), 4));
  };
  EXPECT_THAT(sizes(256), ElementsAre(256, 0, 0, 0));
  EXPECT_THAT(sizes(2048), ElementsAre(2048, 0, 0, 0));
  EXPECT_THAT(sizes(4096), ElementsAre(2048, 2048, 0, 0));
  EXPECT_THAT(sizes(8192), ElementsAre(2048, 2048, 2048, 2048));
  EXPECT_EQ(ServersFor(Buckets({4096}), 4), 2);
  EXPECT_EQ(ServersFor(Buckets({2048, 2048, 2048}), 4), 3);
}

TEST(CutAmongServers, OfManySmallBucketsEachHasSome) {
  const auto cut = CutAmongServers(Buckets(std::vector<int64_t>(12, 1024)), 4);
  EXPECT_THAT(Sizes(cut), ElementsAre(3072, 3072, 3072, 3072));
  EXPECT_THAT(cut[0], ElementsAre(Range{3072, 4096}, Range{7168, 8192},
                                  Range{11264, 12288}));
}

std::vector<Ranges> OfOne(int64_t size, int threads) {
  return CutAmongThreads({{0, size}}, Buckets({size}), threads);
}

TEST(CutAmongThreads, OnlyAsManyAsPiecesHaveWork) {
  EXPECT_THAT(OfOne(kPieceElements, 4),
              ElementsAre(ElementsAre(Range{0, kPieceElements}), IsEmpty(),
                          IsEmpty(), IsEmpty()));
  EXPECT_THAT(Sizes(OfOne(3 * kPieceElements, 4)),
              ElementsAre(kPieceElements, kPieceElements, kPieceElements, 0));
  for (const int64_t size : Sizes(OfOne(9 * kPieceElements, 4))) {
    EXPECT_GE(size, 2 * kPieceElements);
  }
}

// Else one thread would update the last bucket, while workers wait for it.
TEST(CutAmongThreads, AllHaveAPartOfEveryBucket) {
  const auto buckets = Buckets({kMiB * 6, kMiB * 10, kMiB * 8});
  for (const Ranges& part : CutAmongServers(buckets, 2)) {
    for (const Ranges& of_thread : CutAmongThreads(part, buckets, 4)) {
      for (const Range& bucket : buckets) {
        EXPECT_EQ(SizeWithin(of_thread, bucket), bucket.size() / 8);
      }
    }
  }
}

TEST(CutAmongThreads, OneThreadHasItAll) {
  const Ranges part = {{0, 16}, {64, 2 * kPieceElements}};
  EXPECT_THAT(CutAmongThreads(part, Buckets({2 * kPieceElements}), 1),
              ElementsAre(part));
}

}  // namespace
}  // namespace psring
