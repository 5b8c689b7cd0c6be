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

TEST(MapShards, GivesEveryThreadOfEveryServerItsPlace) {
  const auto places = Places(1000000, 3, 2);
  ASSERT_EQ(places.size(), 6u);
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(places[i].server, static_cast<int>(i / 2));
    EXPECT_EQ(places[i].endpoint, "here");
  }
}

}  // namespace
}  // namespace psring
