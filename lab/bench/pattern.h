// What the ranks of a benchmark hand in, and what their sum must be.
//
// Rank r's element e in iteration i is (r + 1) * b(e, i), where b is a whole
// number from 1 to 128 that a multiplicative hash gives. So the sum over n
// ranks is b * n(n+1)/2: below 2^24 for n up to kMaxRanks, hence exact in
// float32 whatever the order, and wrong as soon as a rank, a slice or an
// iteration is missed, repeated or misplaced. lab/bench/peers/ holds the same
// in C and in Python.
#ifndef PSRING_LAB_BENCH_PATTERN_H_
#define PSRING_LAB_BENCH_PATTERN_H_

#include <cstdint>

#include "absl/types/span.h"

namespace psring {

inline constexpr int kMaxRanks = 256;

// How often, at most 32 times, `num_ranks` can sum the pattern in place, each
// time what the last one left, and every sum is exact in float32 whatever the
// order: after k runs it is b * n(n+1)/2 * n^(k-1).
int64_t MaxExactRuns(int num_ranks);

// out[k] becomes `rank`'s element first + k.
void FillPattern(int rank, int64_t iteration, int64_t first,
                 absl::Span<float> out);

// out[k] becomes scale times the sum over ranks of element first + k.
void FillPatternSum(int num_ranks, int64_t iteration, float scale,
                    int64_t first, absl::Span<float> out);

// Where `values`, whose first element is element 0, differ from what `runs`
// sums in place make of the pattern, one run's as FillPatternSum's; -1:
// nowhere. More runs than one are at most MaxExactRuns.
int64_t FindWrongSum(int num_ranks, int64_t iteration, int64_t runs,
                     float scale, absl::Span<const float> values);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_PATTERN_H_
