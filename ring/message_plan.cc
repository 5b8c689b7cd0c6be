#include "ring/message_plan.h"

#include <utility>

namespace psring {
namespace {

AllReduceWay WayAmong(const RingRanks& ranks, int64_t num_elements) {
  return WayOf(static_cast<int>(ranks.nodes.size()), ranks.n, num_elements,
               ranks.limits);
}

bool GoesToEverybody(const RingRanks& ranks, CollectiveKind kind,
                     int64_t num_elements) {
  return kind == CollectiveKind::kAllReduce &&
         WayAmong(ranks, num_elements) == AllReduceWay::kEverybody;
}

}  // namespace

std::vector<Route> RoutesOf(const RingRanks& ranks,
                            const CollectiveShape& shape) {
  const int n = ranks.n;
  const int64_t elements = shape.num_elements;
  switch (shape.kind) {
    case CollectiveKind::kAllReduce:
      switch (WayAmong(ranks, elements)) {
        case AllReduceWay::kRing:
          return AllReduceRoutes(ranks.nodes, n, elements);
        case AllReduceWay::kOwners:
          return DirectRoutes(n, elements, WayBack::kStraight);
        case AllReduceWay::kEverybody:
          return EverybodyRoutes(n, elements);
      }
      break;
    case CollectiveKind::kAllReduceEncoded:
      return DirectRoutes(n, elements,
                          WayAmong(ranks, elements) == AllReduceWay::kRing
                              ? WayBack::kRound
                              : WayBack::kStraight);
    case CollectiveKind::kAllGather:
      return AllGatherRoutes(n, elements);
    case CollectiveKind::kBroadcast:
      return {BroadcastRoute(n, shape.from, elements)};
    case CollectiveKind::kMove:
      return {MoveRoute(shape.from, shape.to, elements)};
  }
  return {};
}

std::vector<OwnedSlice> OwnersOf(const RingRanks& ranks, CollectiveKind kind,
                                 int64_t num_elements) {
  const Range whole{0, num_elements};
  if (ranks.n == 1) return {{whole, 0}};
  if (GoesToEverybody(ranks, kind, num_elements)) {
    return {{whole, OwnedSlice::kEveryRank}};
  }
  std::vector<OwnedSlice> owned;
  if (kind == CollectiveKind::kAllReduceEncoded ||
      WayAmong(ranks, num_elements) == AllReduceWay::kOwners) {
    for (int r = 0; r < ranks.n; ++r) {
      owned.push_back({NearEqualPart(whole, ranks.n, r), r});
    }
    return owned;
  }
  for (int slice = 0; slice < ranks.n; ++slice) {
    const Node& last = ranks.nodes[NodeOfRank(ranks.nodes, ranks.n, slice)];
    owned.push_back(
        {NearEqualPart(whole, ranks.n, slice), AgentOf(last, ranks.n, slice)});
  }
  return owned;
}

MessagePlan PlanOf(const RingRanks& ranks, const CollectiveShape& shape,
                   int rank) {
  MessagePlan plan{RankSchedule(RoutesOf(ranks, shape), rank), {}, {}};
  const std::vector<RankVisit>& visits = plan.schedule.visits();
  if (visits.empty() || !visits.front().apart) return plan;
  if (GoesToEverybody(ranks, shape.kind, shape.num_elements)) {
    plan.whole.emplace(shape.num_elements, ranks.n, rank);
  } else {
    plan.slice.emplace(NearEqualPart({0, shape.num_elements}, ranks.n, rank),
                       ranks.n, rank);
  }
  return plan;
}

}  // namespace psring
