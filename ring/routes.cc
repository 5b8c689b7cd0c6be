#include "ring/routes.h"

#include <algorithm>
#include <utility>

namespace psring {
namespace {

// Direct ways need a connection between any two ranks.
constexpr int kMostDirectRanks = 128;

bool Has(const Node& node, int n, int rank) {
  return (rank - node.first + n) % n < node.size;
}

// From rank c+1 round to rank c, node by node.
void AddReduceVisits(absl::Span<const Node> nodes, int n, int slice,
                     std::vector<Visit>& visits) {
  const int num_nodes = static_cast<int>(nodes.size());
  int node = NodeOfRank(nodes, n, (slice + 1) % n);
  for (int done = 0; done < n; node = (node + 1) % num_nodes) {
    const int rank = (slice + 1 + done) % n;
    const int before = (rank - nodes[node].first + n) % n;
    const int count = std::min(nodes[node].size - before, n - done);
    done += count;
    visits.push_back({.node = node,
                      .agent = 0,
                      .first_rank = rank,
                      .num_ranks = count,
                      .complete = done == n});
  }
}

// From `root` round to the rank before it, of a flat ring; nobody adds.
void AddRound(int n, int root, std::vector<Visit>& visits) {
  for (int hop = 0; hop < n; ++hop) {
    const int rank = (root + hop) % n;
    visits.push_back({.node = rank,
                      .agent = rank,
                      .first_rank = 0,
                      .num_ranks = 0,
                      .complete = true});
  }
}

// Straight from one rank to another.
Route Straight(int from, int to, Range range) {
  Route route{range, {}};
  route.visits.push_back({.node = from,
                          .agent = from,
                          .first_rank = from,
                          .num_ranks = 1,
                          .complete = false});
  route.visits.push_back({.node = to,
                          .agent = to,
                          .first_rank = to,
                          .num_ranks = 1,
                          .complete = true});
  return route;
}

// The same of values that nobody adds to.
Route StraightAsTheyAre(int from, int to, Range range) {
  Route route = Straight(from, to, range);
  for (Visit& visit : route.visits) {
    visit.first_rank = visit.num_ranks = 0;
    visit.complete = true;
  }
  return route;
}

}  // namespace

int NumRounds(int n) {
  int rounds = 0;
  for (int known = 1; known < n; known *= 2) ++rounds;
  return rounds;
}

AllReduceWay WayOf(int num_nodes, int n, int64_t num_elements,
                   const DirectLimits& limits) {
  if (num_nodes < n || n < 2 || n > kMostDirectRanks) {
    return AllReduceWay::kRing;
  }
  const int64_t bytes = num_elements * static_cast<int64_t>(sizeof(float));
  const int fewer = 2 * (n - 1) - NumRounds(n);
  // (n-1) M less 2 (n-1)/n M.
  const int64_t more = (n - 1) * (n - 2) * bytes / n;
  // A message carries the values of up to half of the ranks, in one segment.
  if (num_elements * (n / 2) <= kSegmentElements &&
      more <= fewer * limits.bytes_for_message) {
    return AllReduceWay::kEverybody;
  }
  // Two ranks' ring is its owners.
  return n > 2 && bytes <= limits.bucket_bytes ? AllReduceWay::kOwners
                                               : AllReduceWay::kRing;
}

std::vector<Node> SingleNodes(int n) {
  std::vector<Node> nodes;
  for (int rank = 0; rank < n; ++rank) nodes.push_back({rank, 1});
  return nodes;
}

std::vector<Node> NodesOf(int n, absl::Span<const float> reach) {
  const auto together = [&](int a, int b) {
    return a == b || (reach[a * n + b] != 0 && reach[b * n + a] != 0);
  };
  // A node may wrap around: begin where two neighbours are apart.
  int start = 0;
  for (int rank = 0; rank < n; ++rank) {
    if (!together((rank + n - 1) % n, rank)) start = rank;
  }
  std::vector<Node> nodes;
  for (int i = 0; i < n; ++i) {
    const int rank = (start + i) % n;
    bool joins = !nodes.empty();
    for (int k = 0; joins && k < nodes.back().size; ++k) {
      joins = together((nodes.back().first + k) % n, rank);
    }
    if (joins) {
      ++nodes.back().size;
    } else {
      nodes.push_back({rank, 1});
    }
  }
  return nodes;
}

int NodeOfRank(absl::Span<const Node> nodes, int n, int rank) {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(),
                   [&](const Node& node) { return Has(node, n, rank); });
  return static_cast<int>(found - nodes.begin());
}

int AgentOf(const Node& node, int n, int slice) {
  return (node.first + slice % node.size) % n;
}

std::vector<Route> AllReduceRoutes(absl::Span<const Node> nodes, int n,
                                   int64_t num_elements) {
  const int num_nodes = static_cast<int>(nodes.size());
  std::vector<Route> routes(n);
  for (int slice = 0; slice < n; ++slice) {
    Route& route = routes[slice];
    route.range = NearEqualPart({0, num_elements}, n, slice);
    AddReduceVisits(nodes, n, slice, route.visits);
    const int last = route.visits.back().node;
    for (int hop = 1; hop < num_nodes; ++hop) {
      route.visits.push_back({.node = (last + hop) % num_nodes,
                              .agent = 0,
                              .first_rank = 0,
                              .num_ranks = 0,
                              .complete = true});
    }
    for (Visit& visit : route.visits) {
      visit.agent = AgentOf(nodes[visit.node], n, slice);
    }
  }
  return routes;
}

std::vector<Route> AllGatherRoutes(int n, int64_t num_elements) {
  std::vector<Route> routes(n);
  for (int slice = 0; slice < n; ++slice) {
    routes[slice].range = NearEqualPart({0, num_elements}, n, slice);
    AddRound(n, slice, routes[slice].visits);
  }
  return routes;
}

// Those of one distance after another, so that every rank sends to others first
// than its neighbours do.
std::vector<Route> DirectRoutes(int n, int64_t num_elements, WayBack back) {
  const Range whole{0, num_elements};
  std::vector<Route> routes;
  for (int distance = 1; distance < n; ++distance) {
    for (int slice = 0; slice < n; ++slice) {
      routes.push_back(Straight((slice + distance) % n, slice,
                                NearEqualPart(whole, n, slice)));
      routes.back().apart = true;
    }
  }
  if (back == WayBack::kRound) {
    for (Route& route : AllGatherRoutes(n, num_elements)) {
      route.waits = true;
      routes.push_back(std::move(route));
    }
    return routes;
  }
  for (int distance = 1; distance < n; ++distance) {
    for (int slice = 0; slice < n; ++slice) {
      routes.push_back(StraightAsTheyAre(slice, (slice + distance) % n,
                                         NearEqualPart(whole, n, slice)));
      routes.back().waits = true;
    }
  }
  return routes;
}

std::vector<Route> EverybodyRoutes(int n, int64_t num_elements) {
  std::vector<Route> routes;
  for (int known = 1; known < n; known *= 2) {
    const int64_t sent = std::min(known, n - known) * num_elements;
    for (int from = 0; from < n; ++from) {
      routes.push_back(Straight(from, (from + n - known) % n, {0, sent}));
      routes.back().apart = true;
      routes.back().waits = known > 1;
    }
  }
  return routes;
}

Route BroadcastRoute(int n, int root, int64_t num_elements) {
  Route route{{0, num_elements}, {}};
  AddRound(n, root, route.visits);
  return route;
}

Route MoveRoute(int from, int to, int64_t num_elements) {
  return StraightAsTheyAre(from, to, {0, num_elements});
}

}  // namespace psring
