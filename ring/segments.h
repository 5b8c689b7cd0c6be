// Pure arithmetic: what a rank of a ring sends and receives, hop by hop.
//
// N ranks in a circle; the data is cut into N slices (NearEqualPart). In a
// reduce-scatter's hop h, rank r sends slice r-1-h to r+1 and receives slice
// r-2-h from r-1 (mod N), adds its own and sends that in the next hop; what it
// receives in hop N-2 is its own slice r, complete. In an allgather's hop h it
// sends slice r-h, starting with its own, and receives slice r-1-h
// (Patarasuk & Yuan 2009). Slices travel in segments, each of which goes on as
// soon as it has come: hops overlap.
#ifndef PSRING_RING_SEGMENTS_H_
#define PSRING_RING_SEGMENTS_H_

#include <cstdint>
#include <vector>

#include "common/model/layout.h"

namespace psring {

enum class RingPhase { kReduceScatter, kAllGather };

// The slice that `rank` receives in `hop` (0 to n-2).
int SliceReceived(RingPhase phase, int rank, int n, int hop);

// The slice that `rank` sends in hop 0, from its own memory.
int FirstSliceSent(RingPhase phase, int rank, int n);

// `slice` in runs of at most `max_elements`.
std::vector<Range> SegmentsOf(Range slice, int64_t max_elements);

}  // namespace psring

#endif  // PSRING_RING_SEGMENTS_H_
