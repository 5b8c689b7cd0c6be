// The sum over workers, in the one order that every topology uses.
//
// A bucket of E elements is cut into N slices (NearEqualPart). Slice c's sum
// starts with rank c+1, adds c+2, ... and ends with rank c (mod N): the order
// in which a ring's reduce-scatter meets the ranks (Patarasuk & Yuan, 2009).
// It runs in float32 and is multiplied once by `scale` at its end. Whoever sums
// in this order gets the same bits.
#ifndef PSRING_COMMON_MODEL_REDUCE_H_
#define PSRING_COMMON_MODEL_REDUCE_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/model/layout.h"

namespace psring {

// accumulator[i] += values[i]. Neither needs to be aligned, as they may lie in
// received frames. Any instruction set gives the same bits.
void AddInto(void* accumulator, const void* values, int64_t num_elements);

// data[i] *= scale; `data` as above.
void Scale(void* data, float scale, int64_t num_elements);

// out[i] = scale * canonical sum over ranks of inputs[rank][i], where out and
// every input hold `range`, a part of `bucket` (both in flat elements). Inputs
// need no alignment. `out` may be any input.
void CanonicalSum(Range bucket, Range range,
                  absl::Span<const void* const> inputs, float scale,
                  float* out);

// The same, written to every one of `outs`, each of which holds `range`: one
// pass over memory. The outs may be the inputs, which are read before they are
// written, element by element; that is why the stores are plain ones: a store
// past the caches saves only the read of a line that has not been read.
void CanonicalSumToAll(Range bucket, Range range,
                       absl::Span<const void* const> inputs, float scale,
                       absl::Span<float* const> outs);

}  // namespace psring

#endif  // PSRING_COMMON_MODEL_REDUCE_H_
