// Which bytes of a collective go from which rank to which: pure arithmetic.
//
// Every collective is one or two rounds, in each of which a rank has at most
// one flow to every other rank of the set:
//   allgather, alltoall  round 0: everything, to where it is wanted
//   allreduce            small: round 0: everything to everybody, who all
//                        sum the same
//                        large: round 0: slice c to rank c, which sums it;
//                        round 1: the sum to everybody
//   reducescatter        round 0: as allreduce, with the caller's slices
//   broadcast            small: round 0: from the root to everybody
//                        large: round 0: the c-th part to the c-th other rank;
//                        round 1: from there to the others, so that the root
//                        sends no byte twice (van de Geijn's scatter and
//                        allgather)
//   barrier              round 0: flows of no bytes
// The second round follows the first chunk by chunk.
#ifndef PSRING_COLLECTIVES_FLOW_PLAN_H_
#define PSRING_COLLECTIVES_FLOW_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/call.h"
#include "common/model/layout.h"

namespace psring {

// Up to here every rank gets all operands of an allreduce.
inline constexpr int64_t kOneRoundBytes = 8 << 10;
// Up to here a root sends everything to everybody.
inline constexpr int64_t kDirectBroadcastBytes = 64 << 10;

// From this rank. `to` is an index of the set.
struct Outflow {
  int to = 0;
  uint32_t round = 0;
  const char* data = nullptr;
  int64_t size = 0;       // bytes
  int64_t available = 0;  // a prefix; the rest comes in round 0
};

// To this rank.
struct Inflow {
  int from = 0;
  uint32_t round = 0;
  int64_t size = 0;
  char* place = nullptr;  // null: operands of this rank's sum
  bool forwards = false;  // makes the outflows of round 1 available
};

// What this rank sums.
struct OwnSum {
  std::vector<Range> slices;  // by rank of the set, in elements
  Range range;
  const char* operand = nullptr;  // this rank's, of `range`
  char* out = nullptr;            // of `range`
};

// Bytes that an operation brings by itself; by rank of the set.
struct Gathered {
  std::vector<int64_t> sizes;
  std::unique_ptr<char[]> bytes;  // null: they are in the caller's memory
};

// One to every other rank in round 0, if only of no bytes; then those of round
// 1 that are not empty.
std::vector<Outflow> PlanOutflows(const Call& call);

// The bytes that rank `from` of the set announces in round 0. -1: any number.
int64_t BytesFrom(const Call& call, int from);

// `bytes`: what each rank of the set brings for this one in round 0. Makes room
// in `gathered`, unless the caller has, and copies what this rank brings
// itself. RESOURCE_EXHAUSTED where there is none.
absl::StatusOr<std::vector<Inflow>> PlanInflows(const Call& call,
                                                absl::Span<const int64_t> bytes,
                                                Gathered& gathered);

// Empty where this rank sums nothing.
OwnSum PlanSum(const Call& call);

}  // namespace psring

#endif  // PSRING_COLLECTIVES_FLOW_PLAN_H_
