// How the flat model is cut among servers, and a server's part among its
// threads. Pure arithmetic, which every process and the predictor do alike.
#ifndef PSRING_COMMON_MODEL_SHARD_CUT_H_
#define PSRING_COMMON_MODEL_SHARD_CUT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/layout.h"

namespace psring {

// Ascending; none is empty, and none touches the next.
using Ranges = std::vector<Range>;

int64_t TotalSize(absl::Span<const Range> ranges);
// Of what of them lies in `bucket`.
int64_t SizeWithin(absl::Span<const Range> ranges, Range bucket);

// What each of `servers` has of `buckets`, which are in backward order, as
// those of a layout. Every server has a part of every bucket: workers push to
// all of them from the first bucket on, and not to one after the other. Parts
// are near-equal, and have at least 8 KiB, since a message takes as long as so
// many bytes do at 1 Gbit/s; of small buckets some servers have no part, and of
// a small model the last ones have nothing.
std::vector<Ranges> CutAmongServers(absl::Span<const Range> buckets,
                                    int servers);
// How many of them have something.
int ServersFor(absl::Span<const Range> buckets, int servers);

// What each of a server's `threads` has of its part: near-equal parts of what
// it has of every bucket, so that all of them update the last bucket, for which
// workers wait. A part has at least a piece (kPieceElements), since to wake a
// thread takes longer than a piece's update, or all of a bucket that is
// smaller. Of a small model the last threads have nothing.
std::vector<Ranges> CutAmongThreads(const Ranges& part,
                                    absl::Span<const Range> buckets,
                                    int threads);

}  // namespace psring

#endif  // PSRING_COMMON_MODEL_SHARD_CUT_H_
