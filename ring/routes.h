// Pure arithmetic: the way of each slice through the ranks of a ring.
//
// N ranks in a circle; the data is cut into N slices (NearEqualPart). Slice c
// starts at rank c+1, goes round by way of c+2, c+3, ... (mod N), each adding
// its own values, and is complete at rank c; from there the sum goes round once
// more until all have it (Patarasuk & Yuan 2009). Slices travel in segments,
// and each rank forwards a segment as soon as it has arrived: all hops are busy
// at once.
//
// Consecutive ranks that share memory form a node, which the slice enters once
// for all of them: an agent adds the values of every member, in the same order,
// and writes the sum to every member. That leaves the order of the sum as it
// is, for any placement. A node other than a slice's last is visited once; the
// node in whose middle a slice starts is visited twice, so that the bytes of
// the reduce-scatter between hosts are the flat ring's, and those of the
// allgather are the least possible.
#ifndef PSRING_RING_ROUTES_H_
#define PSRING_RING_ROUTES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/layout.h"

namespace psring {

// Ranks first, first + 1, ..., first + size - 1 (mod N).
struct Node {
  int first = 0;
  int size = 1;

  friend bool operator==(const Node& a, const Node& b) = default;
};

// A node for each rank: the flat ring.
std::vector<Node> SingleNodes(int n);

// The longest runs of ranks that can all reach one another: reach[a * n + b] is
// not 0 where rank a has mapped rank b's memory. Every rank computes the same.
std::vector<Node> NodesOf(int n, absl::Span<const float> reach);

// The node of `rank`.
int NodeOfRank(absl::Span<const Node> nodes, int n, int rank);

// One station of a route.
struct Visit {
  int node = 0;
  int agent = 0;          // the rank that receives here
  int first_rank = 0;     // of those whose values are added here,
  int num_ranks = 0;      // which are so many; 0: none
  bool complete = false;  // what leaves here is the sum (times the scale)

  friend bool operator==(const Visit& a, const Visit& b) = default;
};

struct Route {
  Range range;
  std::vector<Visit> visits;  // the first one starts it
  bool encoded = false;       // of DirectRoutes
  bool waits = false;         // of DirectRoutes: starts with a sum of others
};

// An allreduce through `nodes`: the routes of all slices.
std::vector<Route> AllReduceRoutes(absl::Span<const Node> nodes, int n,
                                   int64_t num_elements);

// An allgather in a flat ring: every slice goes round from its own rank.
std::vector<Route> AllGatherRoutes(int n, int64_t num_elements);

// An allreduce of compressed values, of which partial sums cannot be encoded:
// rank c+1, c+2, ... each send their values of slice c straight to rank c,
// which sums them in that order. First these routes, n * (n - 1) of them,
// encoded; then those of an allgather, each of which waits until its slice is
// summed. Every rank is a node of its own: no rank's values are added to
// another's.
std::vector<Route> DirectRoutes(int n, int64_t num_elements);

// All elements from the root to every other rank of a flat ring.
Route BroadcastRoute(int n, int root, int64_t num_elements);

// The segment that begins at element `begin` of `range`: kSegmentElements, the
// last one fewer.
inline Range SegmentAt(Range range, int64_t begin) {
  return {begin, std::min(begin + kSegmentElements, range.end)};
}

}  // namespace psring

#endif  // PSRING_RING_ROUTES_H_
