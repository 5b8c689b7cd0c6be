#include "ps/shard_map.h"

#include <gtest/gtest.h>

#include <vector>

namespace psring {
namespace {

std::vector<ShardPlace> Places(int64_t elements, int servers, int threads) {
  std::vector<proto::TensorShape> tensors(1);
  tensors[0].set_name("a");
  tensors[0].add_shape(elements);
  proto::Welcome job;
  for (int s = 0; s < servers; ++s) {
    proto::Process& server = *job.add_servers();
    for (int t = 0; t < threads; ++t) server.add_endpoints("here");
  }
  return MapShards(*Layout::Create(tensors, 1), job);
}

TEST(MapShards, CoversTheModelInItsOrder) {
  for (const int64_t elements : {1, 100, 40000, 70000, 1000000}) {
    const auto places = Places(elements, 3, 2);
    ASSERT_EQ(places.size(), 6u);
    int64_t end = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(places[i].server, static_cast<int>(i / 2));
      EXPECT_EQ(places[i].range.begin, end);
      end = places[i].range.end;
    }
    EXPECT_EQ(end, (elements + 15) / 16 * 16);
  }
}

TEST(MapShards, OfASmallModelServersHaveAtLeastEightKilobytesEach) {
  const auto sizes = [](int64_t elements) {
    std::vector<int64_t> sizes;
    for (const ShardPlace& place : Places(elements, 4, 1)) {
      sizes.push_back(place.range.size());
    }
    return sizes;
  };
  EXPECT_EQ(sizes(256), (std::vector<int64_t>{256, 0, 0, 0}));
  EXPECT_EQ(sizes(2048), (std::vector<int64_t>{2048, 0, 0, 0}));
  EXPECT_EQ(sizes(4096), (std::vector<int64_t>{2048, 2048, 0, 0}));
  EXPECT_EQ(sizes(8192), (std::vector<int64_t>{2048, 2048, 2048, 2048}));
}

TEST(MapShards, OnlyAsManyThreadsAsPiecesHaveWork) {
  const auto small = Places(kPieceElements, 1, 4);
  EXPECT_EQ(small[0].range.size(), kPieceElements);
  for (int t : {1, 2, 3}) EXPECT_TRUE(small[t].range.empty());
  const auto medium = Places(3 * kPieceElements, 1, 4);
  for (int t : {0, 1, 2}) EXPECT_EQ(medium[t].range.size(), kPieceElements);
  EXPECT_TRUE(medium[3].range.empty());
  for (const ShardPlace& place : Places(9 * kPieceElements, 1, 4)) {
    EXPECT_GE(place.range.size(), 2 * kPieceElements);
  }
}

}  // namespace
}  // namespace psring
