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
// Of what of `ranges`, which ascend, lies in `bucket`.
int64_t SizeWithin(absl::Span<const Range> ranges, Range bucket);

// What each of `servers` has of `buckets`, which are in backward order, as
// those of a layout. Every server has a near-equal part of every large bucket:
// workers push to all of them from the first bucket on, and not to one after
// the other. A bucket of B bytes has at most B / L parts, rounded up; where
// these are fewer than the servers, those that have the least so far get them.
// Of a small model the last servers have nothing. L is a 32nd of a server's
// share of the model, at least 8 KiB (a message takes as long as so many bytes
// do at 1 Gbit/s) and at most 1 MiB.
std::vector<Ranges> CutAmongServers(absl::Span<const Range> buckets,
                                    int servers);
// How many of them have something.
int ServersFor(absl::Span<const Range> buckets, int servers);

// What each of a server's `threads` has of its part: near-equal parts of what
// it has of every bucket, so that all of them update the last bucket, for which
// workers wait. That has no more parts than pieces (kPieceElements), since to
// wake a thread takes longer than a piece's update; of a small model the last
// threads have nothing.
std::vector<Ranges> CutAmongThreads(const Ranges& part,
                                    absl::Span<const Range> buckets,
                                    int threads);

}  // namespace psring

#endif  // PSRING_COMMON_MODEL_SHARD_CUT_H_
