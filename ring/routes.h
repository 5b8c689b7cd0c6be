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

// Elements that one rank sums, and updates, for all; or all of them do.
struct OwnedSlice {
  static constexpr int kEveryRank = -1;

  Range range;
  int owner = 0;

  friend bool operator==(const OwnedSlice& a, const OwnedSlice& b) = default;
};

// A node for each rank: the flat ring.
std::vector<Node> SingleNodes(int n);

// The longest runs of ranks that can all reach one another: reach[a * n + b] is
// not 0 where rank a has mapped rank b's memory. Every rank computes the same.
std::vector<Node> NodesOf(int n, absl::Span<const float> reach);

// The node of `rank`.
int NodeOfRank(absl::Span<const Node> nodes, int n, int rank);

// Whose turn it is, in a node, to receive what is of `slice`.
int AgentOf(const Node& node, int n, int slice);

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
  // A rank's own values, which are added to others' when all have come.
  bool apart = false;
  bool waits = false;  // starts with a sum of what has come apart
};

// How the values of an allreduce come together. The order of the sum, and so
// its bits, are the same in all.
enum class AllReduceWay {
  kRing,       // slices go round: 2(N-1) hops, the fewest bytes, no copies kept
  kOwners,     // slices go to their owners, the means come back: 2 hops
  kEverybody,  // everybody gets all values: log2(N) hops, the fewest messages
               // and the most bytes
};

// Up to where a way with fewer hops is taken. The same on every rank.
struct DirectLimits {
  // kEverybody: how many bytes more than by way of the owners a rank sends for
  // each message less. 1 Gbit/s carries so many while a message is handled.
  int64_t bytes_for_message = 8 << 10;
  // kOwners: of a bucket.
  int64_t bucket_bytes = 64 << 10;
};

// For so many elements among n ranks that form so many nodes. Every rank
// computes the same.
AllReduceWay WayOf(int num_nodes, int n, int64_t num_elements,
                   const DirectLimits& limits);

// An allreduce through `nodes`: the routes of all slices.
std::vector<Route> AllReduceRoutes(absl::Span<const Node> nodes, int n,
                                   int64_t num_elements);

// An allgather in a flat ring: every slice goes round from its own rank.
std::vector<Route> AllGatherRoutes(int n, int64_t num_elements);

// How the means of DirectRoutes reach everybody.
enum class WayBack { kRound, kStraight };

// An allreduce without partial sums: rank c+1, c+2, ... each send their values
// of slice c straight to rank c, which sums them in that order; so do
// compressed values, of which partial sums cannot be encoded. First these
// routes, n * (n - 1) of them; then those of the means, each of which waits
// until its slice is summed: an allgather's, or one from every owner to every
// other rank. Every rank is a node of its own.
std::vector<Route> DirectRoutes(int n, int64_t num_elements, WayBack back);

// Of EverybodyRoutes among n ranks.
int NumRounds(int n);

// Every rank's values to everybody, each rank's by itself, in rounds (Bruck et
// al. 1997): in round k rank r gets from rank r + 2^k what that has by then,
// the values of 2^k ranks, or of as many as are missing. A route for each rank,
// by round and sender; its range is of what the sender has: its own values,
// then those of the ranks behind it. All but the first round wait for those
// before.
std::vector<Route> EverybodyRoutes(int n, int64_t num_elements);

// All elements from the root to every other rank of a flat ring.
Route BroadcastRoute(int n, int root, int64_t num_elements);

// All elements of `from` to `to`, another rank.
Route MoveRoute(int from, int to, int64_t num_elements);

// The segment that begins at element `begin` of `range`: kSegmentElements, the
// last one fewer.
inline Range SegmentAt(Range range, int64_t begin) {
  return {begin, std::min(begin + kSegmentElements, range.end)};
}

}  // namespace psring

#endif  // PSRING_RING_ROUTES_H_
