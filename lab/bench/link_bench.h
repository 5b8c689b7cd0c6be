// How fast the links between the ranks' hosts are.
#ifndef PSRING_LAB_BENCH_LINK_BENCH_H_
#define PSRING_LAB_BENCH_LINK_BENCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "lab/bench/contender.h"
#include "lab/bench/results.h"

namespace psring {

// Measures the links from each rank to the next and from the last to the first,
// one after the other, at least `windows` windows each, but 200 at most; see
// lab/bench/link.h.
absl::StatusOr<std::vector<LinkStream>> RunLinks(const Stage& stage, int ranks,
                                                 int64_t windows);

// What a limit may count on: the slowest link's median rate, in bits a second.
double SlowestLink(const std::vector<LinkStream>& links);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_LINK_BENCH_H_
