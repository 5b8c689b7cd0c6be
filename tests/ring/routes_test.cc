#include "ring/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <utility>
#include <vector>

namespace psring {
namespace {

using ::testing::ElementsAre;

// Ranks on the hosts that `hosts` gives reach each other.
std::vector<float> ReachOf(const std::vector<int>& hosts) {
  std::vector<float> reach;
  for (int a : hosts) {
    for (int b : hosts) reach.push_back(a == b ? 1.0f : 0.0f);
  }
  return reach;
}

std::vector<Node> NodesOn(const std::vector<int>& hosts) {
  return NodesOf(static_cast<int>(hosts.size()), ReachOf(hosts));
}

const std::vector<std::vector<int>> kPlacements = {
    {0, 1},       {0, 0, 1, 1},    {0, 1, 1, 0},       {0, 1, 0, 1},
    {0, 0, 0, 1}, {0, 0, 1, 2, 2}, {0, 0, 1, 1, 2, 2}, {1, 0, 0, 0, 0, 2, 2, 1},
};

TEST(Routes, SegmentsCoverTheSliceInOrder) {
  constexpr int64_t kMax = kSegmentElements;
  const Range slice{10, 10 + 2 * kMax + 7};
  EXPECT_EQ(SegmentAt(slice, 10), (Range{10, 10 + kMax}));
  EXPECT_EQ(SegmentAt(slice, 10 + kMax), (Range{10 + kMax, 10 + 2 * kMax}));
  EXPECT_EQ(SegmentAt(slice, 10 + 2 * kMax), (Range{10 + 2 * kMax, slice.end}));
}

TEST(Routes, NodesAreTheLongestRunsOfRanksThatReachEachOther) {
  EXPECT_THAT(NodesOn({0, 0, 0}), ElementsAre(Node{0, 3}));
  EXPECT_THAT(NodesOn({0, 0, 1, 1}), ElementsAre(Node{2, 2}, Node{0, 2}));
  EXPECT_THAT(NodesOn({0, 1, 1, 0}), ElementsAre(Node{3, 2}, Node{1, 2}));
  EXPECT_EQ(NodesOn({0, 1, 0, 1}).size(), 4);
  EXPECT_EQ(NodesOf(1, {0.0f}).size(), 1);
}

// A rank that maps another but is not mapped by it goes alone.
TEST(Routes, ReachThatIsNotMutualMakesNoNode) {
  std::vector<float> reach = ReachOf({0, 0, 0});
  reach[0 * 3 + 1] = 0;
  const std::vector<Node> nodes = NodesOf(3, reach);
  for (const Node& node : nodes) {
    for (int i = 0; i < node.size; ++i) {
      for (int k = 0; k < node.size; ++k) {
        const int a = (node.first + i) % 3;
        const int b = (node.first + k) % 3;
        EXPECT_FALSE(a + b == 1 && a != b) << a << b;
      }
    }
  }
}

// The canonical order of common/model/reduce.h.
TEST(Routes, ASliceMeetsEveryRankOnceFromTheOneBehindItsOwner) {
  for (const std::vector<int>& hosts : kPlacements) {
    const int n = static_cast<int>(hosts.size());
    const std::vector<Node> nodes = NodesOn(hosts);
    const auto routes = AllReduceRoutes(nodes, n, 1000);
    for (int slice = 0; slice < n; ++slice) {
      std::vector<int> met;
      for (const Visit& visit : routes[slice].visits) {
        for (int i = 0; i < visit.num_ranks; ++i) {
          met.push_back((visit.first_rank + i) % n);
          EXPECT_EQ(NodeOfRank(nodes, n, met.back()), visit.node);
        }
        EXPECT_EQ(visit.complete, static_cast<int>(met.size()) == n);
      }
      ASSERT_EQ(met.size(), n);
      for (int i = 0; i < n; ++i) EXPECT_EQ(met[i], (slice + 1 + i) % n);
    }
  }
}

TEST(Routes, ASumReachesEveryNodeOnce) {
  for (const std::vector<int>& hosts : kPlacements) {
    const int n = static_cast<int>(hosts.size());
    const std::vector<Node> nodes = NodesOn(hosts);
    for (const Route& route : AllReduceRoutes(nodes, n, 1000)) {
      std::multiset<int> complete_at;
      for (const Visit& visit : route.visits) {
        EXPECT_EQ(NodeOfRank(nodes, n, visit.agent), visit.node);
        if (visit.complete) complete_at.insert(visit.node);
      }
      EXPECT_EQ(complete_at.size(), nodes.size());
      for (size_t i = 0; i < nodes.size(); ++i) {
        EXPECT_EQ(complete_at.count(static_cast<int>(i)), 1);
      }
    }
  }
}

TEST(Routes, EachHopGoesToTheNextNode) {
  for (const std::vector<int>& hosts : kPlacements) {
    const int n = static_cast<int>(hosts.size());
    const std::vector<Node> nodes = NodesOn(hosts);
    for (const Route& route : AllReduceRoutes(nodes, n, 1000)) {
      for (size_t v = 1; v < route.visits.size(); ++v) {
        EXPECT_EQ(route.visits[v].node, (route.visits[v - 1].node + 1) %
                                            static_cast<int>(nodes.size()));
      }
    }
  }
}

TEST(Routes, AnAllGatherGoesRoundFromEachRank) {
  for (int n : {1, 2, 5}) {
    const std::vector<Route> routes = AllGatherRoutes(n, 1000);
    ASSERT_EQ(routes.size(), n);
    for (int c = 0; c < n; ++c) {
      EXPECT_EQ(routes[c].range, NearEqualPart({0, 1000}, n, c));
      ASSERT_EQ(routes[c].visits.size(), n);
      for (int hop = 0; hop < n; ++hop) {
        const Visit& visit = routes[c].visits[hop];
        EXPECT_EQ(visit.agent, (c + hop) % n);
        EXPECT_EQ(visit.num_ranks, 0);
        EXPECT_TRUE(visit.complete);
      }
    }
  }
}

// Slice c: straight from c+1, c+2, ... to c, and from there round.
TEST(DirectRoutes, EverySliceGoesStraightToItsOwnerInTheOrderOfTheSum) {
  for (int n : {1, 2, 3, 5}) {
    const std::vector<Route> routes = DirectRoutes(n, 1000, WayBack::kRound);
    const std::vector<Route> round = AllGatherRoutes(n, 1000);
    ASSERT_EQ(routes.size(), n * (n - 1) + round.size());
    for (int distance = 1; distance < n; ++distance) {
      for (int c = 0; c < n; ++c) {
        const Route& route = routes[(distance - 1) * n + c];
        EXPECT_TRUE(route.apart);
        EXPECT_FALSE(route.waits);
        EXPECT_EQ(route.range, NearEqualPart({0, 1000}, n, c));
        ASSERT_EQ(route.visits.size(), 2u);
        EXPECT_EQ(route.visits[0].agent, (c + distance) % n);
        EXPECT_FALSE(route.visits[0].complete);
        EXPECT_EQ(route.visits[1].agent, c);
      }
    }
    for (int c = 0; c < n; ++c) {
      const Route& route = routes[n * (n - 1) + c];
      EXPECT_FALSE(route.apart);
      EXPECT_TRUE(route.waits);
      EXPECT_EQ(route.visits, round[c].visits);
      EXPECT_EQ(route.visits[0].agent, c);
    }
  }
}

TEST(DirectRoutes, MeansGoStraightBackToEverybodyElse) {
  for (int n : {1, 2, 3, 5}) {
    const std::vector<Route> routes = DirectRoutes(n, 1000, WayBack::kStraight);
    ASSERT_EQ(static_cast<int>(routes.size()), 2 * n * (n - 1));
    std::set<std::pair<int, int>> served;
    for (size_t i = n * (n - 1); i < routes.size(); ++i) {
      const Route& route = routes[i];
      EXPECT_TRUE(route.waits);
      EXPECT_FALSE(route.apart);
      ASSERT_EQ(route.visits.size(), 2u);
      const int owner = route.visits[0].agent;
      EXPECT_EQ(route.range, NearEqualPart({0, 1000}, n, owner));
      for (const Visit& visit : route.visits) {
        EXPECT_TRUE(visit.complete);
        EXPECT_EQ(visit.num_ranks, 0);
      }
      EXPECT_NE(owner, route.visits[1].agent);
      served.emplace(owner, route.visits[1].agent);
    }
    EXPECT_EQ(static_cast<int>(served.size()), n * (n - 1));
  }
}

TEST(EverybodyRoutes, LetEverybodyKnowAllAfterLog2Rounds) {
  constexpr int64_t kElements = 100;
  for (int n : {2, 3, 4, 5, 8, 13}) {
    const std::vector<Route> routes = EverybodyRoutes(n, kElements);
    // How many ranks' values each rank has, its own and those behind it.
    std::vector<int64_t> known(n, 1);
    int hops = 0;
    for (size_t first = 0; first < routes.size(); first += n, ++hops) {
      const std::vector<int64_t> before = known;
      for (int from = 0; from < n; ++from) {
        const Route& route = routes[first + from];
        EXPECT_TRUE(route.apart);
        EXPECT_EQ(route.waits, first > 0);
        ASSERT_EQ(route.visits.size(), 2u);
        EXPECT_EQ(route.visits[0].agent, from);
        const int to = route.visits[1].agent;
        EXPECT_EQ((to + before[to]) % n, from) << "the next that it lacks";
        EXPECT_LE(route.range.size(), before[from] * kElements);
        known[to] += route.range.size() / kElements;
      }
    }
    EXPECT_EQ(known, std::vector<int64_t>(n, n));
    EXPECT_EQ(1u << hops, std::bit_ceil(static_cast<unsigned>(n)));
  }
}

TEST(WayOf, TakesFewerHopsTheSmallerABucketIs) {
  const auto way = [](int n, int64_t bytes) {
    return WayOf(n, n, bytes / 4, DirectLimits());
  };
  EXPECT_EQ(way(4, 1000), AllReduceWay::kEverybody);
  EXPECT_EQ(way(8, 1000), AllReduceWay::kEverybody);
  EXPECT_EQ(way(4, 16'000), AllReduceWay::kEverybody);
  EXPECT_EQ(way(8, 16'000), AllReduceWay::kEverybody);
  EXPECT_EQ(way(4, 64'000), AllReduceWay::kOwners);
  EXPECT_EQ(way(8, 64'000), AllReduceWay::kOwners);
  EXPECT_EQ(way(4, 25'000'000), AllReduceWay::kRing);
  // Two ranks send as much either way, a segment at most at once.
  EXPECT_EQ(way(2, 200'000), AllReduceWay::kEverybody);
  EXPECT_EQ(way(2, 300'000), AllReduceWay::kRing);
  // Their ring is no longer than the way by the owners.
  EXPECT_EQ(WayOf(2, 2, 100'000, {-1, int64_t{1} << 40}), AllReduceWay::kRing);
}

TEST(WayOf, IsTheRingWhereRanksShareAHostOrAreTooMany) {
  EXPECT_EQ(WayOf(2, 4, 100, DirectLimits()), AllReduceWay::kRing);
  EXPECT_EQ(WayOf(1, 1, 100, DirectLimits()), AllReduceWay::kRing);
  EXPECT_NE(WayOf(128, 128, 1, DirectLimits()), AllReduceWay::kRing);
  EXPECT_EQ(WayOf(129, 129, 1, DirectLimits()), AllReduceWay::kRing);
  EXPECT_EQ(WayOf(1000, 1000, 1, DirectLimits()), AllReduceWay::kRing);
}

}  // namespace
}  // namespace psring
