#include "ring/message_plan.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace psring {
namespace {

RingRanks Ranks(int n, std::vector<Node> nodes, DirectLimits limits = {-1, 0}) {
  return {n, std::move(nodes), limits};
}

// Every element has one owner, in order, whatever the way.
void ExpectToCover(const std::vector<OwnedSlice>& owned, int64_t elements) {
  int64_t end = 0;
  for (const OwnedSlice& slice : owned) {
    EXPECT_EQ(slice.range.begin, end);
    end = slice.range.end;
  }
  EXPECT_EQ(end, elements);
}

TEST(OwnersOf, ARankAloneOwnsAll) {
  EXPECT_EQ(
      OwnersOf(Ranks(1, SingleNodes(1)), CollectiveKind::kAllReduce, 1000),
      (std::vector<OwnedSlice>{{{0, 1000}, 0}}));
}

TEST(OwnersOf, EachRankOwnsItsSliceOnEveryWayButToEverybody) {
  const int n = 5;
  constexpr int64_t kAny = int64_t{1} << 40;
  std::vector<OwnedSlice> slices;
  for (int r = 0; r < n; ++r) {
    slices.push_back({NearEqualPart({0, 1000}, n, r), r});
  }
  for (const DirectLimits limits : {DirectLimits{-1, 0}, {-1, kAny}}) {
    const RingRanks ranks = Ranks(n, SingleNodes(n), limits);
    EXPECT_EQ(OwnersOf(ranks, CollectiveKind::kAllReduce, 1000), slices);
    EXPECT_EQ(OwnersOf(ranks, CollectiveKind::kAllReduceEncoded, 1000), slices);
  }
  const RingRanks everybody = Ranks(n, SingleNodes(n), {kAny, 0});
  EXPECT_EQ(OwnersOf(everybody, CollectiveKind::kAllReduce, 1000),
            (std::vector<OwnedSlice>{{{0, 1000}, OwnedSlice::kEveryRank}}));
  EXPECT_EQ(OwnersOf(everybody, CollectiveKind::kAllReduceEncoded, 1000),
            slices);
}

// The ranks of a node share the work of its slices.
TEST(OwnersOf, NodesOwnTheSlicesThatEndThere) {
  const RingRanks ranks = Ranks(4, {{0, 2}, {2, 2}});
  const auto owned = OwnersOf(ranks, CollectiveKind::kAllReduce, 100000);
  ExpectToCover(owned, 100000);
  std::set<int> owners;
  for (int slice = 0; slice < 4; ++slice) {
    EXPECT_EQ(owned[slice].owner / 2, slice / 2) << slice;
    owners.insert(owned[slice].owner);
  }
  EXPECT_EQ(owners.size(), 4u);
}

std::vector<std::vector<Visit>> VisitsOf(const std::vector<Route>& routes) {
  std::vector<std::vector<Visit>> visits;
  for (const Route& route : routes) visits.push_back(route.visits);
  return visits;
}

TEST(RoutesOf, TakeTheWayOfTheKindAndTheSize) {
  constexpr int n = 5;
  constexpr int64_t kElements = 1000;
  const RingRanks ring = Ranks(n, SingleNodes(n));
  const RingRanks owners = Ranks(n, SingleNodes(n), {-1, int64_t{1} << 40});
  const auto visits = [](const RingRanks& ranks, CollectiveKind kind) {
    return VisitsOf(RoutesOf(ranks, {kind, kElements, /*from=*/3, 0}));
  };
  const auto round = VisitsOf(DirectRoutes(n, kElements, WayBack::kRound));
  const auto straight =
      VisitsOf(DirectRoutes(n, kElements, WayBack::kStraight));
  EXPECT_EQ(visits(ring, CollectiveKind::kAllReduce),
            VisitsOf(AllReduceRoutes(SingleNodes(n), n, kElements)));
  EXPECT_EQ(visits(owners, CollectiveKind::kAllReduce), straight);
  EXPECT_EQ(visits(ring, CollectiveKind::kAllReduceEncoded), round);
  EXPECT_EQ(visits(owners, CollectiveKind::kAllReduceEncoded), straight);
  EXPECT_EQ(visits(ring, CollectiveKind::kBroadcast),
            VisitsOf({BroadcastRoute(n, 3, kElements)}));
}

TEST(PlanOf, HoldsTheValuesThatComeApart) {
  constexpr int64_t kAny = int64_t{1} << 40;
  const auto plan = [](DirectLimits limits) {
    return PlanOf(Ranks(5, SingleNodes(5), limits),
                  {CollectiveKind::kAllReduce, 1000, 0, 0}, 2);
  };
  const MessagePlan ring = plan({-1, 0}), owners = plan({-1, kAny}),
                    everybody = plan({kAny, 0});
  EXPECT_FALSE(ring.slice.has_value() || ring.whole.has_value());
  EXPECT_TRUE(owners.slice.has_value() && !owners.whole.has_value());
  EXPECT_TRUE(everybody.whole.has_value() && !everybody.slice.has_value());
}

TEST(PlanOf, AMoveConcernsTwoRanksAlone) {
  const RingRanks ranks = Ranks(3, SingleNodes(3));
  const CollectiveShape shape = {CollectiveKind::kMove, 10, 2, 0};
  EXPECT_EQ(PlanOf(ranks, shape, 2).schedule.starts().size(), 1u);
  EXPECT_TRUE(PlanOf(ranks, shape, 2).schedule.complete());
  EXPECT_TRUE(PlanOf(ranks, shape, 1).schedule.starts().empty());
  EXPECT_TRUE(PlanOf(ranks, shape, 1).schedule.complete());
  EXPECT_FALSE(PlanOf(ranks, shape, 0).schedule.complete());
  EXPECT_EQ(PlanOf(ranks, shape, 0).schedule.awaited(), 2);
}

}  // namespace
}  // namespace psring
