#include "ps/shard_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/host_cores.h"

namespace psring {
namespace {

std::vector<ShardPlace> Places(int64_t elements, int servers, int threads) {
  std::vector<proto::TensorShape> tensors(1);
  tensors[0].set_name("a");
  tensors[0].add_shape(elements);
  proto::Welcome job;
  for (int s = 0; s < servers; ++s) {
    proto::Process& server = *job.add_servers();
    for (int t = 0; t < threads; ++t)
      server.add_endpoints(absl::StrCat(s, ":", t));
  }
  return MapShards(*Layout::Create(tensors, 1), job);
}

TEST(MapShards, GivesEveryThreadOfEveryServerItsPlace) {
  const auto places = Places(1000000, 3, 2);
  ASSERT_EQ(places.size(), 6u);
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(places[i].server, static_cast<int>(i / 2));
    EXPECT_EQ(places[i].endpoint, absl::StrCat(i / 2, ":", i % 2));
  }
}

TEST(MapShards, EveryParameterHasOnePlace) {
  constexpr int64_t kElements = 1'000'000;
  for (const auto& [servers, threads] : {std::pair{1, 1}, {3, 2}, {2, 4}}) {
    std::vector<int> owners(kElements, 0);
    for (const ShardPlace& place : Places(kElements, servers, threads)) {
      for (const Range& range : place.ranges) {
        for (int64_t i = range.begin; i < range.end; ++i) ++owners[i];
      }
    }
    EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), kElements)
        << servers << " servers of " << threads << " threads";
  }
}

TEST(HasCoreForEach, CountsWorkersAndTheThreadsOfServers) {
  proto::Welcome job;
  for (int i = 0; i + 1 < HostCores(); ++i) job.add_workers();
  EXPECT_TRUE(HasCoreForEach(job));
  proto::Process& server = *job.add_servers();
  server.add_endpoints("a");
  EXPECT_TRUE(HasCoreForEach(job));
  server.add_endpoints("b");
  EXPECT_FALSE(HasCoreForEach(job));
}

}  // namespace
}  // namespace psring
