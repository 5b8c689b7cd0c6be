#include "ring/routes.h"

#include <algorithm>
#include <utility>

namespace psring {
namespace {

bool Has(const Node& node, int n, int rank) {
  return (rank - node.first + n) % n < node.size;
}

// From rank c+1 round to rank c, node by node.
void AddReduceVisits(absl::Span<const Node> nodes, int n, int slice,
                     std::vector<Visit>& visits) {
  for (int done = 0; done < n;) {
    const int rank = (slice + 1 + done) % n;
    const int node = NodeOfRank(nodes, n, rank);
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

}  // namespace

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

// A node's members take turns as agents.
std::vector<Route> AllReduceRoutes(absl::Span<const Node> nodes, int n,
                                   int64_t num_elements) {
  const int num_nodes = static_cast<int>(nodes.size());
  std::vector<Route> routes(n);
  for (int slice = 0; slice < n; ++slice) {
    Route& route = routes[slice];
    route.range = NearEqualPart({0, num_elements}, n, slice);
    AddReduceVisits(nodes, n, slice, route.visits);
    const int last = NodeOfRank(nodes, n, slice);
    for (int hop = 1; hop < num_nodes; ++hop) {
      route.visits.push_back({.node = (last + hop) % num_nodes,
                              .agent = 0,
                              .first_rank = 0,
                              .num_ranks = 0,
                              .complete = true});
    }
    for (Visit& visit : route.visits) {
      const Node& node = nodes[visit.node];
      visit.agent = (node.first + slice % node.size) % n;
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
std::vector<Route> DirectRoutes(int n, int64_t num_elements) {
  std::vector<Route> routes;
  for (int distance = 1; distance < n; ++distance) {
    for (int slice = 0; slice < n; ++slice) {
      const int from = (slice + distance) % n;
      Route route{NearEqualPart({0, num_elements}, n, slice), {}, true};
      route.visits.push_back({.node = from,
                              .agent = from,
                              .first_rank = from,
                              .num_ranks = 1,
                              .complete = false});
      route.visits.push_back({.node = slice,
                              .agent = slice,
                              .first_rank = slice,
                              .num_ranks = 1,
                              .complete = true});
      routes.push_back(std::move(route));
    }
  }
  for (Route& route : AllGatherRoutes(n, num_elements)) {
    route.waits = true;
    routes.push_back(std::move(route));
  }
  return routes;
}

Route BroadcastRoute(int n, int root, int64_t num_elements) {
  Route route{{0, num_elements}, {}};
  AddRound(n, root, route.visits);
  return route;
}

}  // namespace psring
