// Which routes a collective of ranks that reach each other by messages takes,
// and what one rank does in it. Nothing in it depends on the data, so that it
// is made once for every kind and size of collective. Pure.
#ifndef PSRING_RING_MESSAGE_PLAN_H_
#define PSRING_RING_MESSAGE_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "ring/rank_schedule.h"
#include "ring/routes.h"
#include "ring/slice_sum.h"

namespace psring {

enum class CollectiveKind {
  kAllReduce,
  kAllReduceEncoded,
  kAllGather,
  kBroadcast,
  kMove,
};

// Two collectives of one shape differ in nothing but their data.
struct CollectiveShape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int64_t num_elements = 0;
  int from = 0;  // of kBroadcast and kMove
  int to = 0;    // of kMove

  friend auto operator<=>(const CollectiveShape& a,
                          const CollectiveShape& b) = default;
};

// The ranks of a job. The same on every rank.
struct RingRanks {
  int n = 1;
  std::vector<Node> nodes;  // of allreduces
  DirectLimits limits;
};

// The routes of all ranks. Every rank computes the same.
std::vector<Route> RoutesOf(const RingRanks& ranks,
                            const CollectiveShape& shape);

// Whose sums an allreduce of so many elements takes: every element's once, in
// order of the elements. Every rank computes the same.
std::vector<OwnedSlice> OwnersOf(const RingRanks& ranks, CollectiveKind kind,
                                 int64_t num_elements);

// The part of one rank.
struct MessagePlan {
  RankSchedule schedule;
  // Where values come apart: of this rank's slice, or of all.
  std::optional<SliceSum> slice;
  std::optional<BucketSum> whole;
};

MessagePlan PlanOf(const RingRanks& ranks, const CollectiveShape& shape,
                   int rank);

}  // namespace psring

#endif  // PSRING_RING_MESSAGE_PLAN_H_
